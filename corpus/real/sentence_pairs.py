"""sentence-transformers: a small random BERT with pooling, trained on pairs by its own trainer."""

# needs: sentence-transformers datasets
import os
import tempfile
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", WANDB_DISABLED="true", TOKENIZERS_PARALLELISM="false")
import torch
from datasets import Dataset
from fingerprint import report
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers import losses as st_losses
from sentence_transformers import models as st_models
from transformers import BertConfig, BertModel, BertTokenizerFast, PrinterCallback, set_seed

set_seed(0)
words = [f"w{k}" for k in range(40)]
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    BertTokenizerFast(str(Path(folder, "vocab.txt"))).save_pretrained(folder)
    BertModel(
        BertConfig(vocab_size=45, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    ).save_pretrained(folder)
    body = st_models.Transformer(folder)
    model = SentenceTransformer(
        modules=[body, st_models.Pooling(body.get_word_embedding_dimension())], device="cpu"
    )
    first = [f"w{k % 40} w{(k * 3) % 40} w{(k * 7) % 40}" for k in range(96)]
    second = [f"w{(k * 7) % 40} w{k % 40}" for k in range(96)]
    arguments = SentenceTransformerTrainingArguments(
        folder, max_steps=20, per_device_train_batch_size=16, learning_rate=1e-3, save_strategy="no",
        report_to=[], disable_tqdm=True, use_cpu=True, logging_steps=10, seed=0,
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(
        model, arguments, train_dataset=Dataset.from_dict({"anchor": first, "positive": second}),
        loss=st_losses.MultipleNegativesRankingLoss(model),
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    print([f"{entry['loss']:.5f}" for entry in trainer.state.log_history if "loss" in entry])
report(model)
