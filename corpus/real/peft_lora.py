"""LoRA adapters of peft on a frozen Llama with random weights."""

# needs: transformers peft
import os

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import torch
from fingerprint import report
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64,
)  # fmt: skip
lora = LoraConfig(
    r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.05, modules_to_save=["lm_head"]
)
model = get_peft_model(LlamaForCausalLM(config), lora)
model.print_trainable_parameters()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
model.train()
for step in range(40):
    tokens = torch.randint(0, 64, (8, 20))
    tokens[:, 1::2] = tokens[:, ::2]
    loss = model(input_ids=tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, f"{loss.item():.6f}")
report(model, optimizer)
