"""Makes SentencePiece models by hand, with any pieces and scores: the bytes of the protocol buffer."""
import struct

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def varint(number):
    out = b""
    while True:
        number, low = number >> 7, number & 127
        out += bytes([low | (128 if number else 0)])
        if not number:
            return out


def message(field, payload):
    return varint(field << 3 | 2) + varint(len(payload)) + payload


def integer(field, value):
    return varint(field << 3) + varint(value & (1 << 64) - 1)


def piece(text, score, kind):
    number = varint(2 << 3 | 5) + struct.pack("<f", score)
    return message(1, message(1, text.encode()) + number + integer(3, kind))


def make_model(scored):
    """Returns a byte-pair encoding with byte pieces and these (text, score) pieces; their ids begin at 259."""
    pieces = [("<unk>", 0, UNKNOWN), ("<s>", 0, CONTROL), ("</s>", 0, CONTROL)]
    pieces += [(f"<0x{byte:02X}>", 0, BYTE) for byte in range(256)]
    pieces += [(text, score, NORMAL) for text, score in scored]
    is_bpe, has_bytes = integer(3, 2), integer(35, 1)
    marks = integer(40, 0) + integer(41, 1) + integer(42, 2) + integer(43, -1)
    # A space before the text, no spaces removed, spaces as U+2581.
    normalizer = message(1, b"identity") + integer(3, 1) + integer(4, 0) + integer(5, 1)
    return b"".join(piece(*each) for each in pieces) + message(2, is_bpe + has_bytes + marks) + message(3, normalizer)
