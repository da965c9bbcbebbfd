// Compares the patch embeddings of each variant of a ViT's last block with those that tests/tools/last_block.py computes in PyTorch.
#include <cstdlib>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/models/last_block.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include <tessera/io/safetensors.h>
#include <tessera/models/model_file.h>

namespace tessera {
namespace {

struct VitCase {
  const char* name;
  const char* image;
};

constexpr VitCase kVits[] = {
    {"clip",
     "encoder: {name: vit, patch_size: 8, width: 12, layers: 3, heads: 3}, readout: cls, projection: {name: linear, "
     "embed_dim: 6}"},
    {"openai",
     "encoder: {name: vit, patch_size: 8, width: 12, layers: 2, heads: 2, activation: quick_gelu, final_norm: pooled}, "
     "readout: cls, projection: {name: linear, embed_dim: 6}"},
    {"without_class_token",
     "encoder: {name: vit, patch_size: 8, width: 12, layers: 2, heads: 3, class_token: false, pre_norm: false, "
     "layer_scale_init: 0.1, final_norm: none}, readout: gap, projection: {name: adaptor, embed_dim: 6}"},
    {"leff",
     "encoder: {name: vit, patch_size: 8, width: 12, layers: 1, heads: 3, leff: {layers: 1}}, readout: cls, "
     "projection: {name: linear, embed_dim: 6}"},
};

void write_vit_case(const std::string& path, const VitCase& each) {
  at::manual_seed(11);
  ModelFile file;
  file.model = resolve(config::read<ModelSettings>(config::parse_yaml(
      concat("image: {", each.image, "}\ntext: null\npreprocessing: {image_size: [32, 24]}\n"), each.name)));
  for (const auto& [name, tensor] : DualEncoder(file.model).state_dict())
    file.weights[name] = tensor.is_floating_point() ? at::rand_like(tensor) * 0.6 - 0.2 : tensor;
  const auto model = build_model(file, each.name);
  model->eval();
  std::map<std::string, at::Tensor> check = {{"pixels", at::randn({2, 3, 32, 24})}};
  for (const char* kind : {"maskclip", "sclip", "clearclip", "naclip"})
    check[kind] =
        model->encode_image(check["pixels"], {.dense = true, .last_block = last_block_named(kind)}).dense.contiguous();
  save_model_file(path + ".safetensors", file);
  io::save_safetensors(path + ".check", check);
}

using PythonFormulas = FolderTest;

TEST_F(PythonFormulas, MatchThePatchesOfEveryLastBlockVariant) {
  const std::string python = TESSERA_TEST_PYTHON;
  if (std::system((python + " -c 'import torch' >/dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "no Python with PyTorch";
  const at::NoGradGuard guard;
  std::string command = python + " -B " TESSERA_SOURCE_DIR "/tests/tools/last_block.py";
  for (const VitCase& each : kVits) {
    write_vit_case(path(each.name), each);
    for (const char* ending : {".safetensors", ".check"}) command += " " + path(each.name) + ending;
  }
  const Answer answer = answer_of_shell(command);
  EXPECT_EQ(answer.code, 0) << answer.text;
  EXPECT_EQ(std::count(answer.text.begin(), answer.text.end(), '\n'), 4 * std::ssize(kVits)) << answer.text;
}

}  // namespace
}  // namespace tessera
