// The TorchScript class tessera.Model: a trained model with its own preprocessing and tokenizer. python/tessera/models.py wraps it.
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <torch/custom_class.h>

#include <tessera/base/error.h>
#include <tessera/batch.h>
#include <tessera/data/image/patches.h>
#include <tessera/data/image/transforms.h>
#include <tessera/data/source.h>
#include <tessera/evaluation/inference.h>

namespace tessera {
namespace {

/// Reduces values of more than 8 bits, [H, W, C], to 8 bits, as decode_image() does: gray by `gray_range`, others to their upper 8 bits.
at::Tensor to_levels(const at::Tensor& values, std::int64_t gray_range) {
  if (values.scalar_type() == at::kByte) return values;
  const at::Tensor wide = values.to(at::kLong);
  const auto [least, most] = at::aminmax(wide);
  if (least.item<std::int64_t>() < 0 || most.item<std::int64_t>() > 65535)
    user_error("an image of more than 8 bits must have values from 0 to 65535, but it has values from ",
               least.item<std::int64_t>(), " to ", most.item<std::int64_t>());
  if (values.size(2) > 1) return wide.bitwise_right_shift(8).to(at::kByte);
  return wide.mul(256).floor_divide(gray_range + 1).clamp_max(255).to(at::kByte);
}

/// Converts levels of 8 or 16 bits (as uint16 or int32), [H, W, C], to an Image. C is 1 (gray) or 3, plus 1 if there is alpha, which is
/// dropped. Throws UserError for other tensors.
Image image_of(const at::Tensor& pixels, std::int64_t gray_range) {
  const bool integers =
      pixels.scalar_type() == at::kByte || pixels.scalar_type() == at::kUInt16 || pixels.scalar_type() == at::kInt;
  if (!integers || pixels.dim() != 3 || pixels.size(2) < 1 || pixels.size(2) > 4 || pixels.numel() == 0)
    user_error("an image must be uint8 (or uint16) [height, width, 1 to 4], but it is ", toString(pixels.scalar_type()),
               " ", pixels.sizes(), ": convert other values to levels from 0 to 255");
  const at::Tensor levels = to_levels(pixels.cpu(), gray_range),
                   colors = levels.slice(2, 0, levels.size(2) < 3 ? 1 : 3);
  const at::Tensor rgb = colors.expand({-1, -1, 3}).contiguous();
  const auto* first = rgb.const_data_ptr<std::uint8_t>();
  return {rgb.size(0), rgb.size(1), std::vector<std::uint8_t>(first, first + rgb.numel())};
}

class BoundModel : public torch::CustomClassHolder {
 public:
  BoundModel(const std::string& path, const std::string& device, const std::string& architecture)
      : loaded_(load_for_inference(path, device, architecture)) {}

  std::string path() const { return loaded_.path; }
  bool takes_texts() const { return loaded_.model->has_text_tower(); }
  std::int64_t embed_dim() const { return loaded_.model->embed_dim(); }
  void train(bool on) { loaded_.model->train(on); }

  /// Returns the parameters and buffers themselves, not copies, under OpenCLIP's names.
  c10::Dict<std::string, at::Tensor> tensors() const {
    c10::Dict<std::string, at::Tensor> out;
    for (const auto& [name, tensor] : loaded_.model->state_dict()) out.insert(name, tensor);
    return out;
  }

  /// Converts the bytes of an image file, uint8 [n], to the model's input, uint8 [3, h, w].
  at::Tensor preprocess_file(const at::Tensor& bytes) const {
    const at::Tensor here = bytes.contiguous();
    const std::string_view file(reinterpret_cast<const char*>(here.const_data_ptr<std::uint8_t>()), static_cast<std::size_t>(here.numel()));
    try {
      return to_tensor(preprocess(decode_image(file, kDefaultMaxPixels, preprocessing()), preprocessing()));
    } catch (const SampleError& error) {
      throw UserError(error.what());
    }
  }

  /// Converts an image's pixels (image_of) to the model's input, uint8 [3, h, w]. `orientation` is the one in its EXIF data.
  at::Tensor preprocess_pixels(const at::Tensor& pixels, std::int64_t orientation) const {
    Image image = image_of(pixels, preprocessing().gray_range);
    if (preprocessing().exif_rotation) image = turned(image, static_cast<int>(orientation));
    return to_tensor(tessera::preprocess(image, preprocessing()));
  }

  /// Returns the embeddings [B, D], not normalized, of images from preprocess_file() or preprocess_pixels().
  at::Tensor encode_images(const std::vector<at::Tensor>& images) {
    if (images.empty()) return loaded_.model->parameters().front().new_empty({0, embed_dim()});
    Batch batch;
    batch.images["image"] = image_batch(images, preprocessing());
    return loaded_.model->encode_image(batch.to(device()).images["image"]).global;
  }

  /// Returns the texts' token ids [B, L] and mask [B, L].
  std::tuple<at::Tensor, at::Tensor> tokenize(const std::vector<std::string>& texts) const {
    const TowerInput input = tokens_of(texts);
    return {input.ids, input.mask};
  }

  /// Returns the texts' embeddings [B, D], not normalized.
  at::Tensor encode_texts(const std::vector<std::string>& texts) {
    Batch batch;
    batch.texts["caption"] = tokens_of(texts);
    return loaded_.model->encode_text(batch.to(device()).texts["caption"]).global;
  }

  /// Returns the embeddings [B, D], not normalized, of texts with ids [B, L] int64 and mask [B, L] bool. Without a mask, no token is
  /// padding.
  at::Tensor encode_ids(const at::Tensor& ids, const std::optional<at::Tensor>& mask) {
    TowerInput input;
    input.ids = ids.to(device());
    if (mask) {
      input.mask = mask->to(device());
      input.lengths = mask->sum(1).cpu();  // so that padding may be anywhere
    }
    return loaded_.model->encode_text(input).global;
  }

 private:
  const Preprocessing& preprocessing() const { return loaded_.model->settings().preprocessing; }

  /// Returns the current device of the weights, which torch.nn.Module.to() may have changed.
  at::Device device() const { return loaded_.model->parameters().front().device(); }

  TowerInput tokens_of(const std::vector<std::string>& texts) const {
    if (!takes_texts() || !loaded_.tokenizer) user_error(loaded_.path, ": the model has no text tower");
    return loaded_.tokenizer->encode_batch(texts);
  }

  InferenceModel loaded_;
};

}  // namespace

[[maybe_unused, gnu::used]] const auto bound_model =
    torch::class_<BoundModel>("tessera", "Model")
        .def(torch::init<std::string, std::string, std::string>())
        .def("path", &BoundModel::path)
        .def("takes_texts", &BoundModel::takes_texts)
        .def("embed_dim", &BoundModel::embed_dim)
        .def("train", &BoundModel::train)
        .def("tensors", &BoundModel::tensors)
        .def("preprocess_file", &BoundModel::preprocess_file)
        .def("preprocess_pixels", &BoundModel::preprocess_pixels)
        .def("encode_images", &BoundModel::encode_images)
        .def("tokenize", &BoundModel::tokenize)
        .def("encode_texts", &BoundModel::encode_texts)
        .def("encode_ids", &BoundModel::encode_ids);

}  // namespace tessera
