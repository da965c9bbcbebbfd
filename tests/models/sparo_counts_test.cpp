#include "src/base/avoided_flops.h"
#include "src/measure/step_meter.h"
#include "src/foreign/architectures.h"
#include "tests/models/small_models.h"
#include <tessera/models/registry.h>

namespace tessera {
namespace {

// Compares parameter counts with Table 6 and Table 0.B.2 of the SPARO paper. All counts include the temperature.

void set(config::ModuleSettings& choice, const char* key, std::int64_t value) {
  choice.settings.set(key, config::Value<std::int64_t>::dump(value));
}

ModelSettings with_sparo(const char* architecture_name, const std::string& readout) {
  ModelSettings s = architecture(architecture_name);
  s.image.readout = s.text->readout = {"sparo", settings(readout)};
  s.image.projection = s.text->projection = {"none"};
  return s;
}

ModelSettings without_last_blocks(ModelSettings s) {
  set(s.image.encoder, "layers", 11);
  set(s.text->encoder, "layers", 11);
  return s;
}

struct Cost {
  std::int64_t parameters = 0;
  double giga_multiply_adds = 0;  // for one image-text pair, counted as if every token were projected to the keys of every slot
};

Cost measure_cost(const ModelSettings& s) {
  DualEncoder model(s);
  model.eval();
  const at::NoGradGuard no_grad;
  const std::int64_t avoided = AvoidedFlops::total();
  const FlopCounter counter;
  const config::Size size = s.preprocessing.image_size;
  model.encode_image(at::zeros({1, 3, size.height, size.width}));
  model.encode_text(text_input(at::zeros({1, 77}, at::kLong)));
  const double flops = counter.flops() + static_cast<double>(AvoidedFlops::total() - avoided);
  return {numbers_in(model) + 1, flops / 2e9};
}

TEST(SparoCounts, MatchThePaperForVitB32) {
  const Cost clip = measure_cost(architecture("ViT-B-32"));
  EXPECT_EQ(clip.parameters, 151'277'313);
  EXPECT_NEAR(clip.giga_multiply_adds, 7.39, 0.005);
  const ModelSettings sparo = with_sparo("ViT-B-32", "{slots: 128}");
  const Cost kept = measure_cost(sparo), replaced = measure_cost(without_last_blocks(sparo));
  EXPECT_EQ(kept.parameters, 161'148'801);
  EXPECT_NEAR(kept.giga_multiply_adds, 8.03, 0.005);
  EXPECT_EQ(replaced.parameters, 150'908'545);
  EXPECT_NEAR(replaced.giga_multiply_adds, 7.42, 0.005);
  EXPECT_EQ(numbers_in(DualEncoder(without_last_blocks(with_sparo("ViT-B-32", "{slots: 64}")))) + 1, 145'649'281);
}

TEST(SparoCounts, MatchThePaperForResnet50) {
  EXPECT_EQ(numbers_in(DualEncoder(with_sparo("RN50", "{slots: 128, slot_width: 32, key_width: 32}"))) + 1, 97'197'473);
  EXPECT_EQ(numbers_in(DualEncoder(with_sparo("RN50", "{slots: 128, slot_width: 32, key_width: 64}"))) + 1,
            107'701'665);
}

TEST(SparoCounts, MatchThePaperForTheAblations) {
  const std::int64_t projections = 768 * 512 + 512 * 512;
  const std::int64_t base = numbers_in(DualEncoder(architecture("ViT-B-32"))) + 1 - projections;
  const auto total = [&](const std::string& attention, const std::string& norm, const std::string& projection) {
    const config::Node sparo = settings("{slots: 128, share_values: false, cross_attention: " + attention + ", layer_norm: " + norm +
                                        ", projection: " + projection + "}");
    std::int64_t sum = base;
    for (const std::int64_t width : {768, 512}) {
      ReadOutContext context;
      context.width = width;
      sum += numbers_in(*readouts().make({"sparo", sparo}, "readout", context));
    }
    return sum;
  };
  EXPECT_EQ(total("multi_head", "full", "full"), 440'143'617);
  EXPECT_EQ(total("multi_head", "full", "slot"), 305'917'825);
  EXPECT_EQ(total("multi_head", "slot", "full"), 440'111'105);
  EXPECT_EQ(total("multi_head", "slot", "slot"), 305'885'313);
  EXPECT_EQ(total("separate_head", "full", "full"), 305'909'505);
  EXPECT_EQ(total("separate_head", "full", "slot"), 171'683'713);
  EXPECT_EQ(total("separate_head", "slot", "full"), 305'876'993);
  EXPECT_EQ(total("separate_head", "slot", "slot"), 171'651'201);
}

}  // namespace
}  // namespace tessera
