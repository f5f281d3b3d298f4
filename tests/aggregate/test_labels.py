from sad_hpc.aggregate.labels import label_table
from sad_hpc.experiment.load import load_experiment
from sad_hpc.storage.run import Run
from tests.conftest import TINY


def test_all_labels_of_the_oracle_are_right(tiny_run: Run):
    experiment = load_experiment(TINY, ["methods=[SAD,DPT,DPT*]"])
    table = label_table(Run(experiment, tiny_run.runs)).set_index("method")
    assert table["label_accuracy"]["DPT*"] == 1 > table["label_accuracy"]["SAD"]
