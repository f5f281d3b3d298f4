from sad_hpc.aggregate.labels import label_table
from sad_hpc.experiment.load import load_experiment
from sad_hpc.storage.run import Run
from tests.conftest import TINY


def test_only_labels_of_sad_cost_the_choice_of_n(tiny_run: Run):
    experiment = load_experiment(TINY, ["methods=[SAD,DPT,DPT*]", "data.chosen={transitions: 7.0}"])
    table = label_table(Run(experiment, tiny_run.runs)).set_index("method")
    assert table["choice_transitions"].to_dict() == {"SAD": 7, "DPT": 0, "DPT*": 0}
    assert table["label_accuracy"]["DPT*"] == 1 > table["label_accuracy"]["SAD"]
