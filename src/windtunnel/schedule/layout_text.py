"""The text of a layout, such as ``Et*4|(t*4|)*14tmL``: read and written.

``E`` embedding, ``t`` transformer layer, ``m`` MTP layer, ``L`` head, ``|`` between chunks; ``x*3`` and ``(..)*3``
repeat; commas and spaces are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, groupby

from windtunnel.errors import Fault, FormatError
from windtunnel.job.plan import Chunk

PATH = "plan.pipeline.layout"
TOKEN = re.compile(r"[EtmL|()]|\*\d+")
LONGEST = 100_000
REMEDY = "write it like Et*4|(t*4|)*14tmL"


@lru_cache(maxsize=512)
def parse_layout(
    text: str,
    pp: int,
    *,
    num_layers: int,
    num_mtp_layers: int = 0,
    virtual_stages: int | None = None,
    path: str = PATH,
) -> tuple[Chunk, ...]:
    """Chunks along the model; chunk i of pp × v, each with consecutive global layer ids.

    ``virtual_stages`` is checked where given. Raises FormatError with every fault found.
    """
    symbols = _expand(text, path)
    parts = symbols.split("|")
    faults = [
        Fault(path, text, rule, remedy)
        for holds, rule, remedy in (
            *_counting_rules(symbols, num_layers, num_mtp_layers),
            *_chunk_rules(parts, pp, virtual_stages),
        )
        if not holds
    ]
    if faults:
        raise FormatError(faults)
    firsts = accumulate((part.count("t") for part in parts), initial=0)
    return tuple(
        Chunk(
            layers=tuple(range(first, first + part.count("t"))),
            embedding="E" in part,
            head="L" in part,
            num_mtp_layers=part.count("m"),
        )
        for first, part in zip(firsts, parts, strict=False)
    )


def layout_text(layout: Sequence[Chunk]) -> str:
    """The shortest plain text of a layout; ``parse_layout`` reads it back."""
    *chunks, last = [_chunk_text(chunk) for chunk in layout]
    pieces = []
    for chunk, same in groupby(chunks):
        times = len(list(same))
        pieces.append(f"{chunk}|" if times == 1 else f"({chunk}|)*{times}")
    return "".join([*pieces, last])


def _chunk_text(chunk: Chunk) -> str:
    return "".join(
        ("E" * chunk.embedding, _run("t", len(chunk.layers)), _run("m", chunk.num_mtp_layers), "L" * chunk.head)
    )


def _run(symbol: str, times: int) -> str:
    return symbol * times if times < 3 else f"{symbol}*{times}"


def _counting_rules(symbols: str, num_layers: int, num_mtp_layers: int) -> tuple[tuple[bool, str, str], ...]:
    """(holds, rule, remedy) about symbols, chunks left aside."""
    flat = symbols.replace("|", "")
    layers, mtp, embeddings, heads = (flat.count(symbol) for symbol in "tmEL")
    return (
        (embeddings == 1, f"one E is due, found {embeddings}", "write E once, first of all"),
        (heads == 1, f"one L is due, found {heads}", "write L once, last of all"),
        (layers == num_layers, f"the model has {num_layers} layers, the layout {layers}", f"write {num_layers} t"),
        (
            mtp == num_mtp_layers,
            f"the model has {num_mtp_layers} MTP layers, the layout {mtp}",
            f"write {num_mtp_layers} m",
        ),
        ("mt" not in flat, "MTP layers follow all transformer layers", "move every m behind the last t"),
    )


def _chunk_rules(parts: Sequence[str], pp: int, virtual_stages: int | None) -> tuple[tuple[bool, str, str], ...]:
    """(holds, rule, remedy) about chunks."""
    chunks = len(parts)
    wanted = f"put {pp * (virtual_stages or 1) - 1} bars"
    return (
        ("E" not in "".join(parts) or parts[0].startswith("E"), "E opens the first chunk", "move E to the front"),
        ("L" not in "".join(parts) or parts[-1].endswith("L"), "L closes the last chunk", "move L to the end"),
        (chunks % pp == 0, f"{chunks} chunks are no multiple of the {pp} pipeline stages", "add or remove bars"),
        (
            chunks % pp != 0 or virtual_stages is None or chunks == pp * virtual_stages,
            f"{chunks} chunks are not {pp} stages × {virtual_stages} virtual stages",
            wanted,
        ),
    )


def _expand(text: str, path: str) -> str:
    """All repeats written out: only E, t, m, L and | remain."""
    stack: list[list[str]] = [[]]
    for token in _tokens(text, path):
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise _fault(path, text, "a ) has no (")
            group = "".join(stack.pop())
            stack[-1].append(group)
        elif token.startswith("*"):
            if not stack[-1]:
                raise _fault(path, text, f"{token} has nothing before it to repeat")
            times = int(token[1:6])
            if len(token) > 6 or times * len(stack[-1][-1]) > LONGEST:
                raise _fault(path, text, f"{token} makes more than {LONGEST} symbols")
            stack[-1][-1] *= times
        else:
            stack[-1].append(token)
    if len(stack) > 1:
        raise _fault(path, text, "a ( has no )")
    return "".join(stack[0])


def _tokens(text: str, path: str) -> list[str]:
    plain = re.sub(r"[,\s]", "", text)
    tokens = TOKEN.findall(plain)
    if "".join(tokens) != plain:
        stray = TOKEN.sub("", plain)
        raise _fault(path, text, f"{stray!r} is no part of a layout (E, t, m, L, |, *n, parentheses)")
    return tokens


def _fault(path: str, text: str, rule: str) -> FormatError:
    return FormatError(Fault(path, text, rule, REMEDY))
