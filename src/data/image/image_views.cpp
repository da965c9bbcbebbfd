#include "src/data/image/image_views.h"

#include <algorithm>
#include <map>
#include <memory>

#include "src/base/digest.h"
#include "src/data/image/orientation.h"
#include "src/data/image/patches.h"
#include "src/data/image/decode.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/image/transforms.h>
#include <tessera/data/source.h>

namespace tessera {
namespace {

// Finds the settings of a view by its name. A view with a numbered name, such as "local_3", uses the settings of "local".
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

const char* settings_of(const std::string& view) {
  return view == "image" ? "data.loader.augmentation" : "its settings in data.loader.views";
}

// Returns whether the augmentation moves objects in other ways than by crop and flip.
bool moves_objects(const Augmentation& settings) {
  return settings.auto_augment != "none" || settings.rand_augment.operations > 0;
}

// Computes where a view shows a box of its image.
SeenBox seen(const Box& box, const config::Size& image, const std::array<double, 4>& part, bool mirrored) {
  const auto along = [&](std::size_t axis, std::int64_t side) {  // returns begin and end, in pixels of the image
    return std::array{std::max<double>(0, static_cast<double>(box[axis])),
                      std::min<double>(static_cast<double>(side), static_cast<double>(box[axis] + box[axis + 2]))};
  };
  const std::array<double, 2> rows = along(0, image.height), columns = along(1, image.width);
  if (rows[0] >= rows[1] || columns[0] >= columns[1])
    throw SampleError("bad_box", concat("the box [", box[1], ", ", box[0], ", ", box[1] + box[3], ", ", box[0] + box[2],
                                        "] is outside the image of ", image.width, " x ", image.height,
                                        " pixels"));
  const auto shown = [&](const std::array<double, 2>& range, std::size_t axis) {
    return std::array{std::clamp((range[0] - part[axis]) / part[axis + 2], 0.0, 1.0),
                      std::clamp((range[1] - part[axis]) / part[axis + 2], 0.0, 1.0)};
  };
  const std::array<double, 2> y = shown(rows, 0);
  std::array<double, 2> x = shown(columns, 1);
  if (mirrored) x = {1 - x[1], 1 - x[0]};
  const double area = (y[1] - y[0]) * part[2] * (x[1] - x[0]) * part[3];
  return {{static_cast<float>(x[0]), static_cast<float>(y[0]), static_cast<float>(x[1]), static_cast<float>(y[1])},
          area / ((rows[1] - rows[0]) * (columns[1] - columns[0]))};
}

ViewImage view_image(const Image& image) {
  ViewImage out{std::vector<std::uint8_t>(image.pixels.size()), {image.height, image.width}};
  write_planes(image, out.planes.data());
  return out;
}

// Returns the model's image size; if images keep their shapes, the size of an image with the maximum number of patches.
config::Size full_size(const Preprocessing& preprocessing) {
  if (!keeps_shapes(preprocessing)) return preprocessing.image_size;
  TORCH_CHECK(preprocessing.patch_size, "preprocessing: naflex needs a patch size");
  const config::Size grid = fullest_grid(preprocessing.max_patches);
  return {grid.height * preprocessing.patch_size->height, grid.width * preprocessing.patch_size->width};
}

void check_patches(config::Size size, config::Size patch, const std::string& view) {
  if (size.height % patch.height == 0 && size.width % patch.width == 0) return;
  user_error("data.loader.views: the image view ", view, " is ", size.height, " x ", size.width,
             " pixels, but for images that keep their shapes (model.preprocessing.resize_mode: naflex) whole patches must fill its "
             "image_size: make its sides multiples of ",
             patch.height, " and ", patch.width);
}

}  // namespace

ImageViews::ImageViews(const Preprocessing& preprocessing, const ImageSettings& settings, const Needs& needs,
                       std::uint64_t seed)
    : preprocessing_(preprocessing),
      filter_(filter_named(preprocessing.interpolation)),
      scaling_(settings.dct_scaling == "auto"),
      max_pixels_(settings.max_pixels),
      seed_(seed) {
  for (const auto& [name, wanted] : needs.images)
    if (!wanted.regions) add_view(name, wanted.boxes, preprocessing, settings);
}

void ImageViews::add_view(const std::string& name, bool boxes, const Preprocessing& preprocessing,
                          const ImageSettings& settings) {
  View added{name, settings.augmentation, full_size(preprocessing)};
  if (name != "image") {
    const ViewSettings* view = find_view(settings.views, name);
    if (view == nullptr)
      user_error("the objective asks for the image view ", name,
                 ", but the data pipeline makes only: ", known_views(settings.views),
                 "; add others to data.loader.views");
    added = {name, *view, view->image_size.value_or(full_size(preprocessing)), view->image_size.has_value(), fingerprint(name)};
    if (keeps_shapes(preprocessing)) check_patches(added.size, *preprocessing.patch_size, name);
  }
  added.boxes = boxes;
  if (boxes && moves_objects(added.settings))
    user_error("the objective asks for the boxes of the image view ", name,
               ", but boxes do not follow the changes by auto_augment and rand_augment: remove both from ", settings_of(name));
  (added.settings.crop == "evaluation" ? whole_ : crops_).push_back(std::move(added));
}

std::map<std::string, config::Size> ImageViews::sizes() const {
  std::map<std::string, config::Size> out;
  for (const auto* views : {&crops_, &whole_})
    for (const View& view : *views) out[view.name] = view.size;
  return out;
}

void ImageViews::check_fixed() const {
  const auto fail = [](const View& view, const std::string& why) {
    user_error("data.features: the image view ", view.name, " ", why, ": set ", settings_of(view.name),
               " to {crop: evaluation}");
  };
  if (keeps_shapes(preprocessing_))
    user_error("data.features: features need images of one size, but with model.preprocessing.resize_mode: naflex images keep "
               "their own shapes: set another mode, or data.features to null");
  for (const View& view : crops_) fail(view, "is a random crop, but features are of whole images");
  for (const View& view : whole_) {
    if (view.settings.flip > 0 || changes_pixels(view.settings))
      fail(view, "is augmented at random, but features are not");
    if (view.size != preprocessing_.image_size)
      fail(view, concat("is ", view.size.height, " x ", view.size.width, " pixels, but features are of ",
                        preprocessing_.image_size.height, " x ", preprocessing_.image_size.width));
  }
}

std::map<std::string, config::Size> image_view_sizes(const Preprocessing& preprocessing, const ImageSettings& settings,
                                                     const Needs& needs) {
  return ImageViews(preprocessing, settings, needs, 0).sizes();
}

std::map<std::string, ViewImage> ImageViews::make(const Sample& sample, std::int64_t index, std::int64_t repeat,
                                                  std::int64_t max_patches) const {
  if (!has_image(sample)) throw_no_image(sample);
  return read_at("sample " + sample.key, {}, [&] {
    const Draw draw{index, repeat, max_patches};
    Images out;
    if (!crops_.empty()) make_crops(sample, draw, out);
    if (!whole_.empty()) make_whole(sample, draw, out);
    return out;
  });
}

std::map<std::string, std::vector<SeenBox>> ImageViews::see(const Sample& sample, const std::vector<Box>& boxes,
                                                            std::int64_t index, std::int64_t repeat) const {
  if (!has_image(sample)) throw_no_image(sample);
  return read_at("sample " + sample.key, {}, [&] {
    std::map<std::string, std::vector<SeenBox>> out;
    const Draw draw{index, repeat, 0};  // max_patches is 0, because it does not affect where a view shows a box
    const ImageHeader header = header_of(sample);
    const config::Size image{header.height, header.width}, stored = turned_size(image, header.orientation);
    for (const auto* views : {&crops_, &whole_})
      for (const View& view : *views) {
        if (!view.boxes) continue;
        const Draws draws = draws_of(view, draw);
        std::array<double, 4> part{};
        if (views == &whole_)
          part = preprocessed_part(image.height, image.width, preprocessing_of(view, draw));
        else
          std::ranges::copy(crop_of(view, image, draws), part.begin());
        const bool mirrored = draws(Purpose::flip).chance(view.settings.flip);
        std::vector<SeenBox>& shown = out[view.name];
        for (const Box& box : boxes)
          shown.push_back(seen(turned_box(box, stored, header.orientation), image, part, mirrored));
      }
    return out;
  });
}

ImageHeader ImageViews::header_of(const Sample& sample) const {
  if (sample.image.empty()) return check_image(sample.encoded, max_pixels_, preprocessing_);
  ImageHeader header;
  header.height = sample.image.height;
  header.width = sample.image.width;
  return header;
}

Box ImageViews::crop_of(const View& view, const config::Size& image, const Draws& draws) const {
  Random random = draws(Purpose::crop);
  return random_resized_crop(image.height, image.width, view.settings.scale, view.settings.ratio,
                             [&] { return random.uniform(); });
}

void ImageViews::make_crops(const Sample& sample, const Draw& draw, Images& out) const {
  const Image& image = sample.image;
  const ImageHeader header = header_of(sample);
  std::vector<Crop> crops;
  for (const View& view : crops_) {
    const Box box = crop_of(view, {header.height, header.width}, draws_of(view, draw));
    crops.push_back({box, keeps_shapes(preprocessing_) ? size_in_patches(box[2], box[3], preprocessing_of(view, draw)) : view.size});
  }
  const DecodedPart part = image.empty()
                               ? decode_for(sample.encoded, header, crops, scaling_, preprocessing_)
                               : DecodedPart{{image.pixels.data(), image.height, image.width, image.width * 3}};
  for (std::size_t i = 0; i < crops_.size(); ++i)
    out[crops_[i].name] = make_crop(crops_[i], part, crops[i], draws_of(crops_[i], draw));
}

ViewImage ImageViews::make_crop(const View& view, const DecodedPart& part, const Crop& crop, const Draws& draws) const {
  const auto [height, width] = crop.size;
  thread_local Image image;
  image.height = height;
  image.width = width;
  image.pixels.resize(static_cast<std::size_t>(height * width * 3));
  const bool mirrored = draws(Purpose::flip).chance(view.settings.flip);
  resample_box(part.pixels, part.at(crop.box), height, width, filter_, mirrored, image.pixels.data());
  if (changes_pixels(view.settings)) augment(image, view.settings, draws);
  return view_image(image);
}

void ImageViews::make_whole(const Sample& sample, const Draw& draw, Images& out) const {
  const Image decoded = sample.image.empty() ? decode_image(sample.encoded, max_pixels_, preprocessing_) : Image();
  for (const View& view : whole_) {
    const Draws draws = draws_of(view, draw);
    Image image = preprocess(sample.image.empty() ? decoded : sample.image, preprocessing_of(view, draw));
    if (draws(Purpose::flip).chance(view.settings.flip)) mirror_rows(image.pixels.data(), image.height, image.width, image.width * 3);
    if (changes_pixels(view.settings)) augment(image, view.settings, draws);
    out[view.name] = view_image(image);
  }
}

Preprocessing ImageViews::preprocessing_of(const View& view, const Draw& draw) const {
  Preprocessing out = preprocessing_;
  if (!keeps_shapes(out))
    out.image_size = view.size;
  else if (view.own_size)
    out.max_patches = view.size.height / out.patch_size->height * (view.size.width / out.patch_size->width);
  else if (draw.max_patches > 0)
    out.max_patches = draw.max_patches;
  return out;
}

// Returns the random numbers of a view. Each view has its own.
ImageViews::Draws ImageViews::draws_of(const View& view, const Draw& draw) const {
  return [seed = seed_, word = view.word, draw](Purpose purpose) {
    const auto repeat = static_cast<std::uint64_t>(draw.repeat), index = static_cast<std::uint64_t>(draw.index);
    return word == 0 ? Random(seed, purpose, {repeat, index}) : Random(seed, purpose, {repeat, index, word});
  };
}

std::function<void(const Sample&, std::int64_t)> training_image_work(const Preprocessing& preprocessing,
                                                                       const ImageSettings& settings) {
  return [views = std::make_shared<ImageViews>(preprocessing, settings, Needs{.texts = {}}, 0)](
             const Sample& sample, std::int64_t index) { views->make(sample, index, 0); };
}

}  // namespace tessera
