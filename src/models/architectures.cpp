#include <array>

#include <tessera/base/text.h>
#include <tessera/models/architectures.h>

namespace tessera {
namespace {

using config::Node;

/// One of OpenCLIP's model configurations; heads of the text tower follow from its width (64 each).
struct Row {
  const char* name;
  std::int64_t embed_dim, image_size;
  std::int64_t patch_size, layers, width, heads;  // ViT
  std::array<std::int64_t, 4> stages;             // ModifiedResNet
  std::int64_t text_width, text_layers;
};

constexpr std::array<std::int64_t, 4> kNoStages = {};

constexpr Row kRows[] = {
    {"ViT-S-32", 384, 224, 32, 12, 384, 6, kNoStages, 384, 12},
    {"ViT-S-16", 384, 224, 16, 12, 384, 6, kNoStages, 384, 12},
    {"ViT-B-32", 512, 224, 32, 12, 768, 12, kNoStages, 512, 12},
    {"ViT-B-32-256", 512, 256, 32, 12, 768, 12, kNoStages, 512, 12},
    {"ViT-B-16", 512, 224, 16, 12, 768, 12, kNoStages, 512, 12},
    {"ViT-L-16", 768, 224, 16, 24, 1024, 16, kNoStages, 768, 12},
    {"ViT-L-14", 768, 224, 14, 24, 1024, 16, kNoStages, 768, 12},
    {"ViT-L-14-336", 768, 336, 14, 24, 1024, 16, kNoStages, 768, 12},
    {"ViT-H-14", 1024, 224, 14, 32, 1280, 16, kNoStages, 1024, 24},
    {"RN50", 1024, 224, 0, 0, 64, 32, {3, 4, 6, 3}, 512, 12},
    {"RN101", 512, 224, 0, 0, 64, 32, {3, 4, 23, 3}, 512, 12},
    {"RN50x4", 640, 288, 0, 0, 80, 40, {4, 6, 10, 6}, 640, 12},
    {"RN50x16", 768, 384, 0, 0, 96, 48, {6, 8, 18, 8}, 768, 12},
    {"RN50x64", 1024, 448, 0, 0, 128, 64, {3, 15, 36, 10}, 1024, 12},
};

constexpr std::string_view kQuickGeluSuffix = "-quickgelu";

template <class T>
void set(config::ModuleSettings& choice, const char* key, const T& value) {
  choice.settings.set(key, config::Value<T>::dump(value));
}

TowerSettings image_tower(const Row& row, const std::string& activation) {
  if (row.patch_size == 0) {
    TowerSettings tower{{"modified_resnet"}, {"attention_pool_2d"}, {"none"}};
    set(tower.encoder, "layers", row.stages);
    set(tower.encoder, "width", row.width);
    set(tower.readout, "heads", row.heads);
    set(tower.readout, "output_dim", row.embed_dim);
    return tower;
  }
  TowerSettings tower{{"vit"}, {"cls"}, {"linear"}};
  set(tower.encoder, "patch_size", config::Size(row.patch_size));
  set(tower.encoder, "layers", row.layers);
  set(tower.encoder, "width", row.width);
  set(tower.encoder, "heads", row.heads);
  set(tower.encoder, "activation", activation);
  set(tower.projection, "embed_dim", row.embed_dim);
  return tower;
}

TowerSettings text_tower(const Row& row, const std::string& activation) {
  TowerSettings tower{{"text_transformer"}, {"eos"}, {"linear"}};
  set(tower.encoder, "layers", row.text_layers);
  set(tower.encoder, "width", row.text_width);
  set(tower.encoder, "heads", row.text_width / 64);
  set(tower.encoder, "activation", activation);
  set(tower.readout, "position", std::string("ids"));
  set(tower.projection, "embed_dim", row.embed_dim);
  return tower;
}

}  // namespace

std::vector<std::string> architecture_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    names.emplace_back(row.name);
    names.push_back(concat(row.name, kQuickGeluSuffix));
  }
  return names;
}

ModelSettings architecture(const std::string& name) {
  const bool quick = name.ends_with(kQuickGeluSuffix);
  const std::string base = quick ? name.substr(0, name.size() - kQuickGeluSuffix.size()) : name;
  for (const Row& row : kRows) {
    if (base != row.name) continue;
    const std::string activation = quick ? "quick_gelu" : "gelu";
    ModelSettings settings;
    settings.image = image_tower(row, activation);
    settings.text = text_tower(row, activation);
    settings.preprocessing.image_size = row.image_size;
    return resolve(settings, name);
  }
  user_error("no architecture named ", name, suggestion(name, architecture_names()));
}

}  // namespace tessera
