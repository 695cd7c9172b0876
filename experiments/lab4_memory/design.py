"""Question 4.3d's design: the models, formats and assumptions of the ledger and of the simulation.

Units: bytes, but for `REPORTED_MIB`.
"""

MIB = 2**20
LARGE, DEFAULT = "DeBERTa-xlarge", "default"  # models: the coursework's, and the logbook's
FP32, MXINT8, PACKED_FIRST = "FP32", "MXINT8", "MXINT8, packed before"
MANTISSA_BITS = SCALE_BITS = 8
BLOCK = 32  # values under one scale
VALUE_BITS = MANTISSA_BITS + SCALE_BITS / BLOCK
FORMULA_SHARE = (4 + 8 / 32) / 32  # of FP32's bytes, as the coursework writes it
TOKENS = 10  # of the coursework's sentence
LENGTH = 128  # tokens of the default model's input
REPEATS = 3  # processes of each variant

WORKSPACES = (8 * MIB + 2**17, MIB)  # of cuBLAS and cuBLASLt on GPUs before Hopper
WRITTEN_BYTES = 2 + 4  # of a weight that is dequantized to BF16 and then cast to FP32
# The course's notebook on its model: peak of the GPU's allocator in evaluation.
REPORTED_MIB = {FP32: 2906.2, MXINT8: 976.2}
# microsoft/deberta-xlarge, the first version.
XLARGE = {
    "vocab_size": 50265,
    "hidden_size": 1024,
    "num_hidden_layers": 48,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "max_position_embeddings": 512,
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_biased_input": False,
    "max_relative_positions": -1,
    "pos_att_type": ["c2p", "p2c"],
    "num_labels": 6,
}
