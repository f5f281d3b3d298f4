"""The floating-point operations that a training step cannot do without."""

from torch import Tensor

from sad_hpc.model.fused.kernel import shape_of
from sad_hpc.model.transformer import Transformer


def step_operations(model: Transformer, prefixes: Tensor) -> int:
    """Operations of forward and backward: three times the matrix products of the forward pass.

    A product of (n, a) and (a, b) is 2 n a b operations.  Attention counts the pairs that see each
    other.  Where only queries answer, the last block's transitions need keys and values, and
    nothing else.  Element-wise work (norms, GELU, softmax, dropout, AdamW) is left out.

    Args:
        model: of the step; an image encoder is not counted.
        prefixes: (B, K): how many transitions each question looks at.  Contexts have T.
    """
    shape, horizon = shape_of(model), model.inputs.horizon
    contexts, questions = prefixes.shape
    width, e = shape.heads * shape.head_width, shape.embedding
    # Where there is one state, transitions answer; one query does so for the empty prefix.
    queries = contexts if shape.stateless else contexts * questions
    transitions = contexts * horizon
    transitions_see = contexts * horizon * (horizon + 1) // 2
    queries_see = queries + (0 if shape.stateless else int(prefixes.sum()))

    def block(keys: int, answers: int, pairs: int) -> int:
        """Multiplications of rows that need keys and values, of which some need all the rest."""
        to_keys_and_values, to_query, back = 2 * e * width, e * width, width * e
        feed_forward = 2 * e * (4 * e)
        of_answers = answers * (to_query + back + feed_forward)
        return keys * to_keys_and_values + of_answers + pairs * 2 * width

    rows, pairs = transitions + queries, transitions_see + queries_see
    last = (rows, pairs) if shape.stateless else (queries, queries_see)
    forward = rows * shape.token_width * e
    forward += (shape.layers - 1) * block(rows, rows, pairs) + block(rows, *last)
    forward += last[0] * e * shape.n_actions
    return 3 * 2 * forward
