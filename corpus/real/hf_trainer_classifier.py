"""transformers.Trainer on a BERT classifier with a frozen embedding, metrics, a checkpoint and early stopping."""

# needs: transformers accelerate
import os
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", WANDB_DISABLED="true", TOKENIZERS_PARALLELISM="false")
import numpy as np
import torch
from fingerprint import report
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EarlyStoppingCallback,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(1)
tokens = torch.randint(5, 50, (120, 16))
labels = (tokens[:, 1] > 27).long()
tokens[:, 0] = 2
mask = torch.ones_like(tokens)
mask[:, 12:] = (torch.rand(120, 4) > 0.5).long()
rows = [{"input_ids": t, "attention_mask": m, "labels": y} for t, m, y in zip(tokens, mask, labels)]
model = BertForSequenceClassification(
    BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
)
model.bert.embeddings.position_embeddings.requires_grad_(False)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, num_train_epochs=4, per_device_train_batch_size=16, learning_rate=2e-3, lr_scheduler_type="cosine",
        eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="accuracy",
        logging_steps=5, report_to=[], disable_tqdm=True, use_cpu=True, seed=1,
    )  # fmt: skip
    trainer = Trainer(
        model, arguments, train_dataset=rows[:96], eval_dataset=rows[96:],
        compute_metrics=lambda p: {"accuracy": float((np.argmax(p.predictions, 1) == p.label_ids).mean())},
        callbacks=[EarlyStoppingCallback(3)],
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    print([f"{entry['loss']:.6f}" for entry in trainer.state.log_history if "loss" in entry])
report(model)
