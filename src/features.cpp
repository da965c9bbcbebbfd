#include <tessera/features.h>

#include <c10/util/Exception.h>

#include <tessera/base/text.h>
#include <tessera/batch.h>

namespace tessera {
namespace {

template <class View>
const View& find_view(const std::map<std::string, View>& views, const std::string& name, const char* kind) {
  const auto found = views.find(name);
  if (found != views.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [each, view] : views) names.push_back(each);
  TORCH_CHECK(false, "no ", kind, " view named ", name, "; there are: ", join_names(names));
}

}  // namespace

const ImageFeatures& Features::image(const std::string& view) const { return find_view(images, view, "image"); }
const TextFeatures& Features::text(const std::string& view) const { return find_view(texts, view, "text"); }

Batch Batch::to(const at::Device& device) const {
  const auto moved = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(device, tensor.scalar_type(), /*non_blocking=*/true) : tensor;
  };
  Batch out = *this;
  for (auto& [name, image] : out.images) image = moved(image);
  for (auto& [name, text] : out.texts) text = {moved(text.ids), moved(text.mask)};
  out.regions = moved(regions);
  out.region_mask = moved(region_mask);
  out.labels = moved(labels);
  out.image_ids = moved(image_ids);
  out.text_ids = moved(text_ids);
  return out;
}

}  // namespace tessera
