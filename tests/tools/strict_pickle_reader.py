#!/usr/bin/env python3
"""Reads a snapshot's pickle as PyTorch's viewer does, and nothing else.

usage: strict_pickle_reader.py PICKLE [JSON]

Accepts the opcodes that the viewer reads and tests, protocols 2 to 4, and what its views need of a snapshot: keys,
groups of at most 1000 items, texts as keys, integers that a JavaScript number is made of, no sharing of what
it writes into, and a history that can be replayed backwards. Compares what it read with what Python's
own pickle makes of the file, and with the JSON file, if one is named.
"""
import json
import pickle
import struct
import sys

MARK = object()
MOST_IN_GROUP = 1000


class Refused(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Refused(what)


class Reader:
    def __init__(self, data):
        self.data, self.at, self.stack, self.memo = data, 0, [], {}
        self.kept, self.used_again = {}, []

    def take(self, count):
        require(self.at + count <= len(self.data), f"{count} bytes at {self.at}")
        piece = self.data[self.at : self.at + count]
        self.at += count
        return piece

    def number(self, count, signed=False):
        return int.from_bytes(self.take(count), "little", signed=signed)

    def to_mark(self):
        start = len(self.stack) - 1 - self.stack[::-1].index(MARK)
        items = self.stack[start + 1 :]
        del self.stack[start:]
        return items

    def put(self, slot):
        value = self.stack[-1]
        require(isinstance(value, (list, dict)), f"only frames are kept, not {value!r}")
        self.memo[slot] = value

    def get(self, slot):
        value = self.memo[slot]
        self.used_again.append(value)
        return value

    def read(self):
        require(self.take(1) == b"\x80" and self.number(1) in (2, 3, 4), "protocol 2, 3 or 4")
        while True:
            opcode = self.take(1)
            if opcode == b".":
                break
            self.step(opcode)
        require(self.at == len(self.data), "nothing after STOP")
        require(len(self.stack) == 1, "one value at STOP")
        return self.stack[0]

    def step(self, opcode):
        push = self.stack.append
        if opcode == b"\x95":
            self.take(8)
        elif opcode == b"N":
            push(None)
        elif opcode in (b"\x88", b"\x89"):
            push(opcode == b"\x88")
        elif opcode == b"J":
            push(self.number(4, signed=True))
        elif opcode == b"K":
            push(self.number(1))
        elif opcode == b"M":
            push(self.number(2))
        elif opcode == b"\x8a":
            count = self.number(1)
            require(count <= 8, "an integer of at most 8 bytes, which is a JavaScript number")
            push(self.number(count, signed=True))
        elif opcode == b"G":
            push(struct.unpack(">d", self.take(8))[0])
        elif opcode == b"\x8c":
            push(self.take(self.number(1)).decode("utf-8"))
        elif opcode == b"X":
            push(self.take(self.number(4)).decode("utf-8"))
        elif opcode == b"]":
            push([])
        elif opcode == b"}":
            push({})
        elif opcode == b"(":
            push(MARK)
        elif opcode == b"a":
            item = self.stack.pop()
            self.stack[-1].append(item)
        elif opcode == b"e":
            items = self.to_mark()
            require(len(items) <= MOST_IN_GROUP, f"groups of at most {MOST_IN_GROUP}, not {len(items)}")
            self.stack[-1].extend(items)
        elif opcode == b"u":
            items = self.to_mark()
            for key, value in zip(items[::2], items[1::2]):
                require(isinstance(key, str), f"a text as key, not {key!r}")
                self.stack[-1][key] = value
        elif opcode == b")":
            push(())
        elif opcode in (b"\x85", b"\x86", b"\x87"):
            count = opcode[0] - 0x84
            items = tuple(self.stack[-count:])
            del self.stack[-count:]
            push(items)
        elif opcode == b"t":
            items = self.to_mark()
            push(tuple(items))
        elif opcode == b"\x94":
            self.put(len(self.memo))
        elif opcode == b"q":
            self.put(self.number(1))
        elif opcode == b"h":
            push(self.get(self.number(1)))
        elif opcode == b"j":
            push(self.get(self.number(4)))
        else:
            raise Refused(f"opcode {opcode!r} at {self.at - 1}")


def require_keys(thing, keys, where):
    for key in keys:
        require(key in thing, f"{where} has {key}")
    for key in ("version", "idx", "categories", "category", "history", "segment_version", "block_version"):
        require(key not in thing, f"{where} has no {key}, which is the viewer's own")


def require_frames(frames, where):
    for frame in frames:
        require(isinstance(frame["filename"], str) and isinstance(frame["name"], str), f"{where}: texts in frames")
        require(isinstance(frame["line"], int), f"{where}: a line in frames")


def require_viewable(snapshot):
    """What the viewer's views need."""
    require_keys(snapshot, ("segments", "device_traces"), "the top level")
    for segment in snapshot["segments"]:
        require_keys(segment, ("device", "address", "total_size", "stream", "blocks", "segment_pool_id"), "a segment")
        require(segment["device"] < len(snapshot["device_traces"]), "a history for the segment's device")
        require(0 <= segment["address"] < 2**63, "an address below 2^63")
        require(sum(block["size"] for block in segment["blocks"]) == segment["total_size"], "blocks tile a segment")
        require_frames(segment.get("frames", []), "a segment")
        for block in segment["blocks"]:
            require_keys(block, ("size", "state", "requested_size"), "a block")
            require_frames(block.get("frames", []), "a block")
    for history in snapshot["device_traces"]:
        for entry in history:
            require_keys(entry, ("action", "size", "stream"), "an entry")
            if entry["action"] == "oom":
                require("device_free" in entry, "an oom has device_free")
            elif entry["action"] != "snapshot":
                require("addr" in entry, "an entry has addr")
            require_frames(entry.get("frames", []), "an entry")


def require_frees_completed(snapshot):
    """A free that was requested and not completed is a block that is pending now."""
    pending = set()
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_pending_free":
                pending.add((segment["device"], address))
            address += block["size"]
    for device, history in enumerate(snapshot["device_traces"]):
        requested = set()
        for entry in history:
            if entry["action"] == "free_requested":
                requested.add(entry["addr"])
            elif entry["action"] == "free_completed":
                requested.discard(entry["addr"])
        for address in requested:
            require((device, address) in pending, f"a pending block at {address}")


def require_frames_shared_alone(snapshot, reader):
    written_into = {id(record) for segment in snapshot["segments"] for record in (segment, *segment["blocks"])}
    written_into |= {id(entry) for history in snapshot["device_traces"] for entry in history}
    for value in reader.used_again:
        require(id(value) not in written_into, "no segment, block or entry is shared")


def without_tuples(value):
    if isinstance(value, (list, tuple)):
        return [without_tuples(item) for item in value]
    if isinstance(value, dict):
        return {key: without_tuples(item) for key, item in value.items()}
    return value


def main(arguments):
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    with open(arguments[0], "rb") as file:
        data = file.read()
    reader = Reader(data)
    snapshot = reader.read()
    require_viewable(snapshot)
    require_frees_completed(snapshot)
    require_frames_shared_alone(snapshot, reader)
    require(snapshot == pickle.loads(data), "Python's pickle reads the same")
    if len(arguments) == 2:
        with open(arguments[1], encoding="utf-8") as file:
            expected = json.load(file)
        require(json.dumps(without_tuples(snapshot), sort_keys=True) == json.dumps(expected, sort_keys=True),
                "the JSON says the same")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Refused as refusal:
        print(f"strict_pickle_reader.py: expected {refusal}", file=sys.stderr)
        sys.exit(1)
