#include "src/data/image/image_views.h"

#include <map>
#include <memory>

#include "src/data/image/planes.h"
#include "src/data/image/sample_picture.h"
#include <tessera/base/digest.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/image/training_views.h>
#include <tessera/data/image/transforms.h>
#include <tessera/data/source.h>

namespace tessera {
namespace {

std::uint64_t draw_word(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

// A view of this name, or one of those that are counted: "local_3" of "local".
const ViewSettings* find_view(const std::map<std::string, ViewSettings>& views, const std::string& name) {
  for (const auto& [key, view] : views) {
    if (view.count == 0 && name == key) return &view;
    for (std::int64_t i = 0; i < view.count; ++i)
      if (name == concat(key, "_", i)) return &view;
  }
  return nullptr;
}

std::string known_views(const std::map<std::string, ViewSettings>& views) {
  std::vector<std::string> names = {"image"};
  for (const auto& [key, view] : views) {
    if (view.count == 0) names.push_back(key);
    if (view.count > 0) names.push_back(concat(key, "_0"));
    if (view.count > 1) names.back() += concat(" to ", key, "_", view.count - 1);
  }
  return join_names(names);
}

}  // namespace

ImageViews::ImageViews(const Preprocessing& preprocessing, const ImageSettings& settings, const Needs& needs,
                       std::uint64_t seed)
    : filter_(filter_named(preprocessing.interpolation)),
      scaling_(settings.dct_scaling == "auto"),
      max_pixels_(settings.max_pixels),
      seed_(seed) {
  for (const auto& [name, wanted] : needs.images)
    if (!wanted.regions) add_view(name, preprocessing, settings);
}

void ImageViews::add_view(const std::string& name, const Preprocessing& preprocessing, const ImageSettings& settings) {
  if (name == "image") {
    views_.push_back({name, settings.augmentation, preprocessing.image_size});
    return;
  }
  const ViewSettings* view = find_view(settings.views, name);
  if (view == nullptr)
    user_error("the objective asks for the image view ", name,
               ", but the data pipeline makes only: ", known_views(settings.views), "; data.loader.views names others");
  views_.push_back({name, *view, view->image_size.value_or(preprocessing.image_size), fingerprint(name)});
}

std::map<std::string, config::Size> ImageViews::sizes() const {
  std::map<std::string, config::Size> out;
  for (const View& view : views_) out[view.name] = view.size;
  return out;
}

std::map<std::string, config::Size> image_view_sizes(const Preprocessing& preprocessing, const ImageSettings& settings,
                                                     const Needs& needs) {
  return ImageViews(preprocessing, settings, needs, 0).sizes();
}

std::map<std::string, std::vector<std::uint8_t>> ImageViews::make(const Sample& sample, std::int64_t index,
                                                                  std::int64_t repeat) const {
  if (!has_picture(sample)) throw_no_image(sample);
  try {
    return make_views(sample, index, repeat);
  } catch (const SampleError& error) {
    throw SampleError(error.reason(), "sample " + sample.key + ": " + error.what());
  }
}

std::map<std::string, std::vector<std::uint8_t>> ImageViews::make_views(const Sample& sample, std::int64_t index,
                                                                        std::int64_t repeat) const {
  const Image& image = sample.image;
  ImageHeader header;
  if (image.empty()) {
    header = check_image(sample.encoded, max_pixels_);
  } else {
    header.height = image.height;
    header.width = image.width;
  }
  std::vector<Crop> crops;
  for (const View& view : views_) {
    Random random = draws_of(view, Purpose::crop, index, repeat);
    crops.push_back({random_resized_crop(header.height, header.width, view.settings.scale, view.settings.ratio,
                                         [&] { return random.uniform(); }),
                     view.size});
  }
  const DecodedPart part = image.empty()
                               ? decode_for(sample.encoded, header, crops, scaling_)
                               : DecodedPart{{image.pixels.data(), image.height, image.width, image.width * 3}};
  std::map<std::string, std::vector<std::uint8_t>> out;
  for (std::size_t i = 0; i < views_.size(); ++i)
    out[views_[i].name] = make_view(views_[i], part, crops[i].box,
                                    [&](Purpose purpose) { return draws_of(views_[i], purpose, index, repeat); });
  return out;
}

std::vector<std::uint8_t> ImageViews::make_view(const View& view, const DecodedPart& part, const Box& box,
                                                const std::function<Random(Purpose)>& draws) const {
  const auto [height, width] = view.size;
  thread_local Image image;
  image.height = height;
  image.width = width;
  image.pixels.resize(static_cast<std::size_t>(height * width * 3));
  const bool mirrored = draws(Purpose::flip).chance(view.settings.flip);
  resample_box(part.pixels, part.at(box), height, width, filter_, mirrored, image.pixels.data());
  if (changes_pixels(view.settings)) augment(image, view.settings, draws);
  std::vector<std::uint8_t> planes(image.pixels.size());
  write_planes(image, planes.data());
  return planes;
}

// Each view has random numbers of its own.
Random ImageViews::draws_of(const View& view, Purpose purpose, std::int64_t index, std::int64_t repeat) const {
  if (view.word == 0) return Random(seed_, purpose, {draw_word(repeat), draw_word(index)});
  return Random(seed_, purpose, {draw_word(repeat), draw_word(index), view.word});
}

std::function<void(const Sample&, std::int64_t)> training_picture_work(const Preprocessing& preprocessing,
                                                                       const ImageSettings& settings) {
  return [views = std::make_shared<ImageViews>(preprocessing, settings, Needs{.texts = {}}, 0)](
             const Sample& sample, std::int64_t index) { views->make(sample, index, 0); };
}

}  // namespace tessera
