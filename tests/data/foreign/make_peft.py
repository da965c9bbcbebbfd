#!/usr/bin/env python3
"""Writes peft.safetensors in this folder: the model of clip/ with PEFT's adapters, before and after five steps of PyTorch's AdamW.
Needs torch, transformers, peft and safetensors; run it in this folder. It downloads nothing."""
import re
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import CLIPModel

LAYERS = {"q_proj": "attn.lora_query", "k_proj": "attn.lora_key", "v_proj": "attn.lora_value", "out_proj": "attn.lora_out",
          "fc1": "mlp.lora_in", "fc2": "mlp.lora_out"}
# Every linear layer of the image tower, and the queries and values of the text tower.
TARGETS = r".*vision_model\.encoder\.layers\.\d+\..*(q_proj|k_proj|v_proj|out_proj|fc1|fc2)|.*text_model\.encoder\.layers\.\d+\..*(q_proj|v_proj)"


def our_name(theirs):
    tower, block, layer, matrix = re.search(r"(vision|text)_model\.encoder\.layers\.(\d+)\..*?(\w+)\.lora_(A|B)\.", theirs).groups()
    return f"{'visual.' if tower == 'vision' else ''}transformer.resblocks.{block}.{LAYERS[layer]}_{matrix.lower()}"


def adapters(model):
    return {our_name(name): value.detach().clone() for name, value in model.named_parameters() if value.requires_grad}


def embeddings(model, case):
    image = model.get_image_features(pixel_values=case["pixels"]); text = model.get_text_features(input_ids=case["ids"])
    return [x if torch.is_tensor(x) else x.pooler_output for x in (image, text)]


torch.manual_seed(0); torch.set_num_threads(1)
case = {name: value for name, value in load_file("clip/expected.safetensors").items() if name in ("pixels", "ids")}
model = get_peft_model(CLIPModel.from_pretrained("clip"), LoraConfig(r=4, lora_alpha=6, target_modules=TARGETS))
case |= {f"before.{name}": value for name, value in adapters(model).items()}
case |= {"image_target": torch.randn(2, 24), "text_target": torch.randn(3, 24)}
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.1)
losses = []
for _ in range(5):
    image, text = embeddings(model, case)
    loss = (image - case["image_target"]).square().mean() + (text - case["text_target"]).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step(); losses.append(loss.item())
case |= {f"after.{name}": value for name, value in adapters(model).items()}
with torch.no_grad(): image, text = embeddings(model.merge_and_unload(), case)
case |= {"losses": torch.tensor(losses), "image": image, "text": text}
save_file({name: value.contiguous() for name, value in case.items()}, "peft.safetensors")
print(losses)
