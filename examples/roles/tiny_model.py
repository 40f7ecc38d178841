"""Writes a model of 100 KB with random weights, with which the examples run without a download.

    pip install gguf
    python tiny_model.py tiny.gguf
"""

import sys

import gguf
import numpy

WIDTH, HEADS, INNER = 32, 2, 64
# Each byte is a token, besides those that a vocabulary must have.
TOKENS = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + ["\u2581"]
KINDS = (
    [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    + [gguf.TokenType.BYTE] * 256
    + [gguf.TokenType.NORMAL]
)

random = numpy.random.default_rng(seed=0)
writer = gguf.GGUFWriter(sys.argv[1], "llama")


def add_weights(name, *shape):
    writer.add_tensor(name, 0.1 * random.standard_normal(shape, dtype=numpy.float32))


def add_norm(name):
    writer.add_tensor(name, numpy.ones(WIDTH, dtype=numpy.float32))


writer.add_context_length(512)
writer.add_embedding_length(WIDTH)
writer.add_block_count(1)
writer.add_feed_forward_length(INNER)
writer.add_head_count(HEADS)
writer.add_head_count_kv(HEADS)
writer.add_rope_dimension_count(WIDTH // HEADS)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_vocab_size(len(TOKENS))
writer.add_tokenizer_model("llama")
writer.add_token_list(TOKENS)
writer.add_token_scores([0.0] * len(TOKENS))
writer.add_token_types(KINDS)
writer.add_unk_token_id(0)
writer.add_bos_token_id(1)
writer.add_eos_token_id(2)

add_weights("token_embd.weight", len(TOKENS), WIDTH)
for kind in "attn_q", "attn_k", "attn_v", "attn_output":
    add_weights(f"blk.0.{kind}.weight", WIDTH, WIDTH)
add_weights("blk.0.ffn_gate.weight", INNER, WIDTH)
add_weights("blk.0.ffn_up.weight", INNER, WIDTH)
add_weights("blk.0.ffn_down.weight", WIDTH, INNER)
add_weights("output.weight", len(TOKENS), WIDTH)
for name in "blk.0.attn_norm", "blk.0.ffn_norm", "output_norm":
    add_norm(name + ".weight")

writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
