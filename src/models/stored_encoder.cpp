#include <tessera/base/error.h>

#include "src/models/add_module.h"

namespace tessera {
namespace {

struct StoredEncoderSettings {
  std::int64_t width = 0;
};

void fields(auto& v, StoredEncoderSettings& s) {
  v("width", s.width, "width of the stored vectors", config::in_range(0, 1 << 20));
}

std::optional<config::Problem> validate(const StoredEncoderSettings& s) {
  if (s.width == 0) return config::Problem{"width", "is not set: give the number of columns of the stored vectors"};
  return std::nullopt;
}

/// Stands for a model whose vectors data.features holds (LiT's, SAIL's and LLM2CLIP's frozen towers, if only heads are trained). It has no
/// parameters, and it cannot encode anything.
class StoredEncoder : public Encoder {
 public:
  StoredEncoder(const StoredEncoderSettings& settings, Modality modality) : width_(settings.width), modality_(modality) {}

  Encoded encode(const TowerInput& /*input*/) override {
    const bool image = modality_ == Modality::image;
    user_error(image ? "model.image.encoder: stored_images" : "model.text.encoder: stored_texts", " stands for stored vectors and cannot encode ",
               image ? "an image" : "a text", ": set data.features, or name the encoder itself");
  }
  std::int64_t width() const override { return width_; }
  Modality modality() const override { return modality_; }
  bool has_class_token() const override { return true; }
  bool only_stored() const override { return true; }
  std::int64_t context_length() const override { return modality_ == Modality::text ? 1 : 0; }

 private:
  std::int64_t width_;
  Modality modality_;
};

template <Modality kModality>
void add_stored(EncoderRegistry& list, const char* name, const char* help) {
  list.add<StoredEncoderSettings>(name, help,
                                  [](const StoredEncoderSettings& s) { return std::make_shared<StoredEncoder>(s, kModality); });
}

}  // namespace

void add_stored_encoders(EncoderRegistry& list) {
  add_stored<Modality::image>(list, "stored_images", "stands for vectors of images that data.features holds; it has no parameters");
  add_stored<Modality::text>(list, "stored_texts", "stands for vectors of texts that data.features holds; it has no parameters");
}

}  // namespace tessera
