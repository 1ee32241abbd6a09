"""Content ids: equality, deduplication and resumption are the same operation."""

import hashlib
import json


def content_id(prefix: str, payload: object) -> str:
    """Return `prefix_` + 12 hex digits of the SHA-256 of `payload` as canonical JSON.

    The prefix starts with a letter, so no configuration language reads an id as a number.
    """
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"{prefix}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def source_id(source: str) -> str:
    """Return the `k_` id of a candidate file: line ends, trailing blanks and the final newline do not
    count.
    """
    lines = [line.rstrip() for line in source.replace("\r\n", "\n").split("\n")]
    return content_id("k", "\n".join(lines).strip("\n"))
