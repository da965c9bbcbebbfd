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

/// Converts a tensor to an Image. Throws UserError unless it is uint8 [H, W, 3].
Image image_of(const at::Tensor& pixels) {
  if (pixels.scalar_type() != at::kByte || pixels.dim() != 3 || pixels.size(2) != 3 || pixels.numel() == 0)
    user_error("an image must be uint8 [height, width, 3], but it is ", toString(pixels.scalar_type()), " ", pixels.sizes());
  const at::Tensor here = pixels.cpu().contiguous();
  const auto* first = here.const_data_ptr<std::uint8_t>();
  return {here.size(0), here.size(1), std::vector<std::uint8_t>(first, first + here.numel())};
}

class BoundModel : public torch::CustomClassHolder {
 public:
  /// `image_size` is empty, or height and width.
  BoundModel(const std::string& path, const std::string& device, const std::string& architecture, const std::vector<std::int64_t>& image_size,
             const std::string& state) {
    CheckpointOptions options{.architecture = architecture, .state = state};
    if (!image_size.empty()) options.image_size = config::Size(image_size.front(), image_size.back());
    loaded_ = load_for_inference(path, device, options);
  }

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
      return to_tensor(preprocess(decode_image(file), preprocessing()));
    } catch (const SampleError& error) {
      throw UserError(error.what());
    }
  }

  /// Converts an image's pixels, uint8 [H, W, 3], to the model's input, uint8 [3, h, w].
  at::Tensor preprocess_pixels(const at::Tensor& pixels) const {
    return to_tensor(tessera::preprocess(image_of(pixels), preprocessing()));
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
        .def(torch::init<std::string, std::string, std::string, std::vector<std::int64_t>, std::string>())
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
