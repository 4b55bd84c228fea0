"""Records what transformers' apply_chat_template makes of the templates here: writes cases.json and tokenizer.json.

    python exec/tests/data/chat/generate.py        (transformers 5.17.0, tokenizers 0.23.3)
"""

import datetime
import json
import pathlib

import transformers.utils.chat_template_utils as utils
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent


class Fixed(datetime.datetime):
    """The moment that strftime_now sees."""

    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


utils.datetime = Fixed

SYSTEM = {"role": "system", "content": "Be <brief> & kind."}
USER = {"role": "user", "content": "Wie heißt du?\n"}
ANSWER = {"role": "assistant", "content": "Ich heiße Ada."}
AGAIN = {"role": "user", "content": "And \"you\"?"}
THOUGHT = {"role": "assistant", "content": "<think>\nThe user asks.\n</think>\n\nI am fine."}
REASONED = {"role": "assistant", "content": "Done.", "reasoning_content": "Short\nthought."}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"b": 2, "a": [1.5, None, True, "é<"]}}}],
}
TOOL = {"role": "tool", "content": "3.5"}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"z": 1, "a": {}, "l": []}}}]

CONVERSATIONS = {
    "one turn": [USER, ANSWER],
    "system, one turn": [SYSTEM, USER, ANSWER],
    "two turns": [USER, ANSWER, AGAIN, THOUGHT],
    "thinking first": [SYSTEM, USER, THOUGHT, AGAIN, ANSWER],
    "reasoning": [USER, THOUGHT, AGAIN, REASONED],
    "open end": [SYSTEM, USER, ANSWER, AGAIN],
    "tool": [USER, CALL, TOOL, ANSWER],
    "reasoned tool": [USER, {**CALL, "reasoning_content": "Add."}, TOOL, REASONED],
    "answer first": [ANSWER, AGAIN, THOUGHT],
}


def tokenizer():
    """A byte-level BPE of a few merges with the special tokens of all templates."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    words = json.dumps(CONVERSATIONS, ensure_ascii=False).replace("\\n", "\n")
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    t.train_from_iterator([words + 50 * "a\n\n\n"], trainer)
    special = ["<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<start_of_turn>", "<end_of_turn>"]
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    t.save(str(HERE / "tokenizer.json"), pretty=False)
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")


def main():
    hf = tokenizer()
    cases = []
    for template in ["qwen3", "smollm2", "llama3", "generation", "strict"]:
        text = (HERE / f"{template}.jinja").read_text()
        for name, messages in CONVERSATIONS.items():
            for values in [{}, {"enable_thinking": False}] if template == "qwen3" else [{}]:
                tools = TOOLS if "tool" in name else None
                case = {"template": template, "name": name, "values": values}
                # A string, so that readers keep the order of its keys.
                case["record"] = json.dumps({"messages": messages, "tools": tools}, ensure_ascii=False)
                render = lambda **more: hf.apply_chat_template(messages, tools=tools, chat_template=text, **values, **more)
                try:
                    case["text"] = render(tokenize=False)
                    case["prompt"] = render(tokenize=False, add_generation_prompt=True)
                except Exception as error:
                    case["error"] = str(error)
                    cases.append(case)
                    continue
                marks = template == "generation"
                tokens = render(tokenize=True, return_dict=True, return_assistant_tokens_mask=marks)
                case["ids"] = tokens["input_ids"]
                if marks:
                    case["mask"] = tokens["assistant_masks"]
                cases.append(case)
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (HERE / "cases.json").write_text(f"[\n{lines}\n]\n")


main()
