"""Texts of eight lengths, lognormal around 800 bytes: `python3 texts.py SAMPLES > models/twin.jsonl`."""

import json
import random
import sys

LENGTHS = [256, 512, 768, 1024, 1536, 2048, 3072, 4096]
draw = random.Random(1)
letters = "abcdefghijklmnopqrstuvwxyz     "

for _ in range(int(sys.argv[1])):
    wanted = draw.lognormvariate(6.7, 0.8)
    length = next((edge for edge in LENGTHS if edge >= wanted), LENGTHS[-1])
    text = "".join(draw.choices(letters, k=length))
    print(json.dumps({"text": text}))
