#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/foreign/architectures.h"
#include "tests/models/small_models.h"
#include "tests/support/temporary_folder.h"
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>
#include <tessera/models/model_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

class ModelFiles : public FolderTest {};

ModelFile small_file() {
  ModelFile file;
  at::manual_seed(3);
  DualEncoder model(small_sparc());
  file.model = model.settings();
  file.weights = model.state_dict();
  file.weights["logit_scale"] = at::tensor(2.5F);
  file.weights["objective.prototypes"] = at::ones({2, 2});
  file.tokenizer = {"sentencepiece", settings("{context_length: 8}")};
  for (int byte = 0; byte < 256; ++byte) file.vocabulary += static_cast<char>(byte);
  file.extra["step"] = "100";
  return file;
}

TEST_F(ModelFiles, HoldEverythingThatInferenceNeeds) {
  const ModelFile file = small_file();
  save_model_file(path("m.safetensors"), file);
  const ModelFile loaded = load_model_file(path("m.safetensors"));
  EXPECT_EQ(config::to_json(config::dump(loaded.model)), config::to_json(config::dump(file.model)));
  EXPECT_EQ(loaded.tokenizer.name, "sentencepiece");
  EXPECT_EQ(loaded.tokenizer.settings.find("context_length")->text(), "8");
  EXPECT_EQ(loaded.vocabulary, file.vocabulary);
  EXPECT_EQ(loaded.extra, file.extra);
  EXPECT_EQ(loaded.weights.size(), file.weights.size());

  const auto model = build_model(loaded, "m.safetensors");
  EXPECT_FALSE(model->is_training());
  at::manual_seed(3);
  DualEncoder original(small_sparc());
  const at::Tensor pixels = random_pixels(2);
  EXPECT_TRUE(at::equal(model->encode_image(pixels).global, original.encode_image(pixels).global));
}

TEST_F(ModelFiles, MayLackTextTowerAndTokenizer) {
  ModelSettings settings = small_sparc();
  settings.text.reset();
  DualEncoder original(settings);
  ModelFile file;
  file.model = original.settings();
  file.weights = original.state_dict();
  save_model_file(path("m.safetensors"), file);
  EXPECT_FALSE(io::load_safetensors(path("m.safetensors")).metadata.contains("tessera.tokenizer"));
  const ModelFile loaded = load_model_file(path("m.safetensors"));
  EXPECT_FALSE(loaded.model.text.has_value());
  EXPECT_EQ(loaded.tokenizer.name, "");
  EXPECT_EQ(loaded.vocabulary, "");
  const at::Tensor pixels = random_pixels(2);
  EXPECT_TRUE(at::equal(build_model(loaded, "m.safetensors")->encode_image(pixels).global,
                        original.encode_image(pixels).global));
}

TEST_F(ModelFiles, ErrorExplainsHowToConvertAPlainFile) {
  io::save_safetensors(path("plain.safetensors"), {{"visual.proj", at::ones({2, 2})}});
  EXPECT_EQ(error_of([&] { load_model_file(path("plain.safetensors")); }),
            concat(path("plain.safetensors"),
                   ": no model settings in it; if it is an OpenCLIP file, convert it: tessera-convert --from "
                   "open_clip --architecture NAME ",
                   path("plain.safetensors"), " OUT.safetensors"));
}

TEST_F(ModelFiles, RejectAChangedVocabulary) {
  save_model_file(path("m.safetensors"), small_file());
  io::TensorFile stored = io::load_safetensors(path("m.safetensors"));
  stored.metadata["tessera.vocabulary"] = base64_encode("other");
  io::save_safetensors(path("m.safetensors"), stored.tensors, stored.metadata);
  const std::string message = error_of([&] { load_model_file(path("m.safetensors")); });
  EXPECT_TRUE(message.starts_with(
      concat(path("m.safetensors"), ": the tokenizer's vocabulary has SHA-256 ", sha256("other"), ", but ")))
      << message;
}

TEST_F(ModelFiles, RejectSettingsThatDoNotFitTheWeights) {
  ModelFile file = small_file();
  file.model.text->encoder.settings.set("layers", config::Node::scalar("3"));
  EXPECT_EQ(error_of([&] { build_model(file, "m.safetensors"); }),
            "m.safetensors: tensor transformer.resblocks.2.attn.in_proj_bias [24] is missing: the file is not of this "
            "architecture");
  file.model.text->encoder.settings.set("activation", config::Node::scalar("tanh"));
  EXPECT_TRUE(error_of([&] {
                build_model(file, "m.safetensors");
              }).starts_with("m.safetensors: model.text.encoder.activation: "));
}

TEST_F(ModelFiles, AreFoundInRunsAndCheckpoints) {
  const fs::path step = folder_ / "run/checkpoints/step_0000100";
  fs::create_directories(step);
  EXPECT_EQ(error_of([&] { find_model_file(path("run")); }),
            path("run") +
                ": holds neither model.safetensors nor checkpoints/latest: expected a model file, a checkpoint folder "
                "or a run folder");
  for (const char* file : {"run/checkpoints/epoch_2.pt", "run/open_clip_model.safetensors"}) {
    io::write_file(path(file), "");
    EXPECT_EQ(error_of([&] { find_model_file(path("run")); }),
              path("run") + ": holds neither model.safetensors nor checkpoints/latest: name a file in it: " + path(file));
  }
  io::write_file(path("run/checkpoints/latest"), "step_0000100\n");
  EXPECT_EQ(error_of([&] { find_model_file(path("run")); }),
            concat(path("run/checkpoints/latest"), ": names step_0000100, but there is no ",
                   (step / "model.safetensors").string(), ": name another checkpoint folder"));
  const std::string model = (step / "model.safetensors").string();
  io::write_file(model, "");
  EXPECT_EQ(find_model_file(path("run")), model);
  EXPECT_EQ(find_model_file(path("run/checkpoints")), model);
  EXPECT_EQ(find_model_file(step.string()), model);
  EXPECT_EQ(find_model_file(model), model);
  fs::remove(folder_ / "run/checkpoints/latest");
  fs::create_directory_symlink("step_0000100", folder_ / "run/checkpoints/latest");
  EXPECT_TRUE(fs::equivalent(find_model_file(path("run")), model));
  EXPECT_EQ(error_of([&] { find_model_file(path("nowhere")); }), path("nowhere") + ": no such file or folder");
}

TEST(Architectures, AreThoseOfOpenClip) {
  std::size_t read = 0;
  for (const std::string& name : architecture_names()) {
    const std::string error = error_of([&] { architecture(name); });
    const bool refused = error.find(name + ": ") != std::string::npos && error.find(" is not read: ") != std::string::npos;
    if (refused) continue;
    ++read;
    EXPECT_EQ(error, "no error") << name;
  }
  EXPECT_EQ(architecture_names().size(), 144u);
  EXPECT_EQ(read, 142u);  // docs/open_clip_architectures.md states this number
  EXPECT_EQ(architecture("ViT-L-14-336").preprocessing.image_size.height, 336);
}

TEST(Architectures, TakeTheActivationFromTheName) {
  EXPECT_EQ(architecture("ViT-B-16").text->encoder.settings.find("activation")->text(), "gelu");
  EXPECT_EQ(architecture("ViT-B-16-quickgelu").image.encoder.settings.find("activation")->text(), "quick_gelu");
  EXPECT_EQ(architecture("ViT-S-32-quickgelu").image.encoder.settings.find("activation")->text(), "quick_gelu")
    << "the suffix works with any name";
  EXPECT_EQ(error_of([] { architecture("ViT-B-31"); }), "no architecture named ViT-B-31: did you mean ViT-B-32?");
}

}  // namespace
}  // namespace tessera
