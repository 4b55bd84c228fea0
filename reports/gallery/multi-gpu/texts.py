"""Texts of three lengths, full microbatches of 57,344 bytes each: `python3 texts.py MICROBATCHES > models/multi-gpu.jsonl`.

Of 8 microbatches 3 are of 1024 bytes a text, 3 of 2048 and 2 of 4096.
"""

import json
import random
import sys

BUDGET = 57_344
PATTERN = [1024, 2048, 4096, 1024, 2048, 1024, 4096, 2048]
draw = random.Random(1)
letters = "abcdefghijklmnopqrstuvwxyz     "

for microbatch in range(int(sys.argv[1])):
    length = PATTERN[microbatch % len(PATTERN)]
    for _ in range(BUDGET // length):
        # The reader adds an end of text.
        text = "".join(draw.choices(letters, k=length - 1))
        print(json.dumps({"text": text}))
