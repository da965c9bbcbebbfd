#include <filesystem>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/program.h"
#include <tessera/base/error.h>
#include <tessera/evaluation/inference.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = R"(
image: {encoder: {name: vit, patch_size: 8, width: 12, layers: 1, heads: 3}, readout: {name: cls},
        projection: {name: linear, embed_dim: 6}}
text: {encoder: {name: text_transformer, vocab_size: 49408, context_length: 16, width: 8, layers: 1, heads: 2}, readout: {name: eos},
       projection: {name: linear, embed_dim: 6}}
preprocessing: {image_size: 16}
)";

/// An OpenCLIP file with random weights, and what tessera-convert makes of it.
class Convert : public ::testing::Test {
 protected:
  Convert() : folder_(fs::temp_directory_path() / concat("tessera_convert_", ::getpid())) {
    fs::create_directories(folder_);
    io::write_file(path("model.yaml"), kModel);
    at::manual_seed(1);
    DualEncoder model(resolve(config::read<ModelSettings>(config::load_yaml(path("model.yaml")))));
    io::save_safetensors(path("open_clip.safetensors"), model.state_dict());
  }
  ~Convert() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

TEST_F(Convert, TheTokenizerOfAnOpenClipModelRepairsTextAsOpenClipDoes) {
  const Answer answer = answer_of("tessera-convert --from open_clip --settings " + path("model.yaml") +
                                  " --merges " TESSERA_SOURCE_DIR "/configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz " +
                                  path("open_clip.safetensors") + " " + path("model.safetensors"));
  ASSERT_EQ(answer.code, 0) << answer.text;
  const InferenceModel run = load_for_inference(path("model.safetensors"));
  EXPECT_EQ(run.file.tokenizer.settings.find("context_length")->text(), "16");
  // "café" whose UTF-8 was read as Latin-1, and as it should be: with ftfy's repair they are one caption.
  EXPECT_EQ(run.tokenizer->encode("caf\u00C3\u00A9 on the corner"), run.tokenizer->encode("caf\u00E9 on the corner"));
}

}  // namespace
}  // namespace tessera
