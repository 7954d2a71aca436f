"""transformers.Trainer on a small GPT-2 with random weights: evaluation, warm-up, accumulation, clipping."""

# needs: transformers accelerate
import os
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", WANDB_DISABLED="true", TOKENIZERS_PARALLELISM="false")
import torch
from fingerprint import report
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainingArguments, set_seed

set_seed(0)
words = torch.randint(0, 60, (96, 24))
words[:, 1::2] = (words[:, ::2] + 5) % 60
rows = [{"input_ids": row, "labels": row.clone()} for row in words]
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=60, n_positions=32, n_embd=48, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=1)
)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, max_steps=30, per_device_train_batch_size=8, gradient_accumulation_steps=2, learning_rate=1e-3,
        warmup_steps=5, logging_steps=10, eval_strategy="steps", eval_steps=15, save_strategy="no",
        report_to=[], disable_tqdm=True, use_cpu=True, seed=0,
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=rows[:80], eval_dataset=rows[80:])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    for entry in trainer.state.log_history:
        print({key: value for key, value in entry.items() if "runtime" not in key and "per_second" not in key})
report(model)
