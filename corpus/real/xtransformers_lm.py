"""An autoregressive model of x-transformers with rotary positions and flash-style attention."""

# needs: x-transformers
import torch
from fingerprint import report
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

torch.manual_seed(0)
net = TransformerWrapper(
    num_tokens=32, max_seq_len=32, attn_layers=Decoder(dim=48, depth=2, heads=4, rotary_pos_emb=True, ff_glu=True)
)
model = AutoregressiveWrapper(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(40):
    tokens = torch.randint(0, 32, (8, 25))
    tokens[:, 1::2] = tokens[:, :-1:2]
    loss = model(tokens)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(step, f"{loss.item():.6f}")
model.eval()
print(model.generate(torch.randint(0, 32, (1, 4)), 6).tolist())
report(model, optimizer)
