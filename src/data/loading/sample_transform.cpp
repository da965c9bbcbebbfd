#include "src/data/loading/sample_transform.h"

#include <algorithm>

#include <c10/util/Exception.h>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include "src/data/features/feature_folder.h"
#include "src/data/features/taught_folder.h"
#include "src/data/image/decode.h"
#include <tessera/base/error.h>
#include <tessera/base/random.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

bool has_regions(const Sample& sample) {
  return !sample.regions.empty() && sample.region_width > 0;
}

// Distinguishes the draws for boxes from those for hard negatives of images.
constexpr std::uint64_t kWordOfBoxes = 0x4258;

bool is_in_sight(const SeenBox& box, double least_visible) {
  return box.visible > 0 && box.visible >= least_visible;
}

std::int64_t to_id(std::uint64_t fingerprint) {
  return static_cast<std::int64_t>(fingerprint >> 1);
}

std::int64_t id_of(std::string_view bytes, std::uint64_t seed = 0) {
  return to_id(fingerprint(bytes, seed));
}

// Returns the group of a sample that lacks the image or text by which samples are grouped. Each such sample forms a group of its own.
std::int64_t lone_group(const Sample& sample) {
  return id_of(sample.key, fingerprint("lacking"));
}

std::int64_t image_group_of(const Sample& sample) {
  return has_image(sample) ? to_id(image_fingerprint(sample)) : lone_group(sample);
}

}  // namespace

std::string compared_text(const Needs& needs) {
  if (needs.texts.contains("caption")) return "caption";
  const auto found = std::ranges::find_if(needs.texts, [](const auto& each) { return !holds_several_texts(each.first); });
  return found == needs.texts.end() ? std::string() : found->first;
}

std::map<std::string, std::int64_t> texts_per_image(const LoaderSettings& settings) {
  std::map<std::string, std::int64_t> out;
  for (const auto& view : make_text_views(settings))
    if (view.count > 0 && holds_several_texts(view.name)) out[view.name] = view.count;
  return out;
}

std::vector<std::string> needed_fields(const Needs& needs) {
  std::set<std::string> images;  // image, regions
  for (const auto& [name, view] : needs.images)
    if (!view.optional) images.insert(view.regions ? "regions" : "image");
  std::vector<std::string> needed(images.begin(), images.end());
  for (const auto& [name, view] : needs.texts)
    if (!view.optional) needed.push_back(name);
  return needed;
}

SampleTransform::SampleTransform(std::shared_ptr<const Tokenizer> tokenizer, const Preprocessing& preprocessing,
                                 const LoaderSettings& settings, const Needs& needs, std::uint64_t seed, const LoaderTarget& target)
    : images_(preprocessing, settings, needs, seed),
      tokenizer_(std::move(tokenizer)),
      settings_(settings),
      needs_(needs),
      compared_(compared_text(needs)),
      seed_(seed),
      region_width_(target.region_width),
      features_(target.features),
      text_features_(target.text_features),
      teachers_(target.teachers),
      texts_(make_text_views(settings)) {
  TORCH_CHECK(tokenizer_ != nullptr || needs_.texts.empty(), "Loader: texts are needed, but there is no tokenizer");
  check_views();
  if (!needs_.texts.empty()) no_text_ = tokenizer_->encode("");
  if (features_) images_.check_fixed();
}

const TextView* SampleTransform::find_view(const std::string& name) const {
  const auto found = std::ranges::find(texts_, name, &TextView::name);
  return found == texts_.end() ? nullptr : &*found;
}

void SampleTransform::check_views() const {
  std::vector<std::string> known;
  for (const auto& view : texts_) known.push_back(view.name);
  for (const auto& [name, wanted] : needs_.texts)
    if (find_view(name) == nullptr)
      user_error("the objective asks for the text ", name, ", but the data pipeline knows only: ", join_names(known));
  for (const auto& [name, wanted] : needs_.texts)
    if (const TextView& view = *find_view(name); view.count == 0) user_error("the objective asks for ", view.unset);
  if (wants_boxes() && !settings_.boxes) user_error("the objective asks for ", kBoxesUnset);
}

bool SampleTransform::wants_boxes() const {
  return std::ranges::any_of(needs_.images, [](const auto& view) { return view.second.boxes; });
}

std::vector<std::string> SampleTransform::fields_of(const Sample& sample) const {
  std::vector<std::string> names;
  if (has_image(sample)) names.emplace_back("image");
  for (const auto& view : texts_)
    if (view.is_in(sample)) names.push_back(view.name);
  for (const TextField& field : sample.texts) names.push_back("the text field " + printable(field.name));
  if (has_regions(sample)) names.emplace_back("regions");
  if (sample.label >= 0) names.emplace_back("label");
  if (!sample.mask.empty()) names.emplace_back("mask");
  if (!sample.depth.empty()) names.emplace_back("depth");
  return names;
}

std::string SampleTransform::missing_field(const Sample& sample) const {
  const std::vector<std::string> found = fields_of(sample);
  for (const std::string& name : needed_fields(needs_))
    if (!contains(found, name)) return name;
  return {};
}

bool SampleTransform::lacks_features(const Sample& sample) const {
  if (!features_ || !has_image(sample)) return false;
  try {
    features_->read(sample.key, image_fingerprint(sample));
    return false;
  } catch (const SampleError&) {
    return true;
  }
}

std::int64_t PreparedSample::bytes() const {
  auto total = static_cast<std::int64_t>(sizeof(float) * regions.capacity() + features.capacity());
  for (const auto* stored : {&taught, &text_features})
    for (const auto& [name, rows] : *stored) total += static_cast<std::int64_t>(rows.capacity());
  for (const auto& [name, view] : pixels) total += static_cast<std::int64_t>(view.planes.capacity());
  for (const auto& [name, extra] : extras) total += static_cast<std::int64_t>(extra.nbytes());
  for (const auto& [name, view] : texts)
    for (const auto& tokens : view.ids) total += static_cast<std::int64_t>(sizeof(std::int64_t) * tokens.capacity());
  return total;
}

SampleDraw draw_of_crop(const Sample& sample, const SampleDraw& draw, std::int64_t crop) {
  SampleDraw out = draw;
  out.index = id_of(sample.key);
  out.repeat = crop;
  return out;
}

SampleDraw SampleTransform::draw_of_image(const Sample& sample, const SampleDraw& draw) const {
  return teachers_ ? draw_of_crop(sample, draw, draw.repeat % teachers_->crops()) : draw;
}

// Adds the embeddings of the crop that the sample shows, and of the chosen texts, for the views that need them.
void SampleTransform::add_taught(const Sample& sample, const SampleDraw& draw, std::uint64_t image, PreparedSample& out) const {
  for (const auto& [name, view] : needs_.images)
    if (view.taught > 0) out.taught[name] = teachers_->of_crop(sample.key, image, name, draw.repeat % teachers_->crops());
  for (const auto& [name, view] : needs_.texts) {
    if (view.taught > 0)
      out.taught[name] = rows_of_texts(out.texts.at(name), teachers_->manifest(),
                                       [&](const std::string& text) { return teachers_->of_text(sample.key, text); });
  }
}

// Returns the stored rows of a view's texts, one after the other. The row of an absent text holds zeros, which losses ignore.
std::vector<std::uint8_t> SampleTransform::rows_of_texts(
    const PreparedTexts& texts, const FeatureManifest& manifest,
    const std::function<std::vector<std::uint8_t>(const std::string& text)>& row_of) {
  std::vector<std::uint8_t> out;
  for (std::size_t k = 0; k < texts.ids.size(); ++k) {
    std::vector<std::uint8_t> row;
    if (!texts.ids[k].empty()) row = row_of(texts.chosen[k]);
    row.resize(static_cast<std::size_t>(manifest.bytes()));
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

PreparedSample SampleTransform::prepare(Sample sample, const SampleDraw& draw) const {
  PreparedSample out;
  out.key = sample.key;
  out.label = sample.label;
  try {
    // Texts first: they are cheap, and a sample without one needs no decoding.
    std::optional<RegionTexts> regions;
    const auto regions_once = [&]() -> const RegionTexts& {
      if (!regions) regions = choose_regions(sample, draw, out);
      return *regions;
    };
    for (const auto& [name, wanted] : needs_.texts)
      prepare_text(name, sample, {seed_, draw.index, draw.repeat, draw.caption, regions_once, wanted.optional}, out);
    if (wants_boxes()) regions_once();
    for (const auto& [name, extra] : needs_.extras) {
      const at::Tensor& own = out.extras[name] = extra.read(sample);
      TORCH_CHECK(own.sizes() == extra.example.sizes() && own.scalar_type() == extra.example.scalar_type(), "sample ", sample.key,
                  ": the objective's ", name, " is ", own.scalar_type(), " ", own.sizes(), ", but its example is ",
                  extra.example.scalar_type(), " ", extra.example.sizes());
    }
    const std::uint64_t image = teachers_ && has_image(sample) ? image_fingerprint(sample) : 0;
    prepare_images(sample, draw_of_image(sample, draw), out);
    if (teachers_) add_taught(sample, draw, image, out);
    for (const auto& [name, texts] : out.texts)
      if (text_features_)
        out.text_features[name] = rows_of_texts(texts, text_features_->manifest(), [&](const std::string& text) {
          return read_text_row(*text_features_, sample.key, text);
        });
  } catch (const SampleError& error) {
    out.reject(error);
    out.found = fields_of(sample);
  }
  return out;
}

// Chooses and encodes the texts of a view. A text that is empty counts as absent; so does one without words in a view of several texts.
void SampleTransform::prepare_text(const std::string& name, const Sample& sample, const TextDraw& draw, PreparedSample& out) const {
  const TextView& view = *find_view(name);
  const bool several = holds_several_texts(name);
  const std::vector<std::string> chosen = view.choose(sample, draw);
  PreparedTexts& texts = out.texts[name];
  for (const std::string& text : chosen) {
    std::vector<std::int64_t>& ids = texts.ids.emplace_back();
    const TextCuts cuts = strip(text).empty() ? TextCuts() : encode(text, ids);
    texts.cut.push_back(cuts.cut_texts > 0);
    if (teachers_ || text_features_) texts.chosen.push_back(text);
    if (several || cuts.texts > 0) out.cuts[name] += cuts;
    if (several && ids == no_text_) ids.clear();  // only special tokens: no text
  }
  if (std::ranges::all_of(texts.ids, [](const auto& ids) { return ids.empty(); })) view.check_wordless(sample, draw.optional);
  if (!needs_.duplicates) return;
  if (name == compared_) out.caption_group = chosen[0].empty() ? lone_group(sample) : id_of(chosen[0]);
  if (name != kCaptions) return;
  for (const std::vector<std::int64_t>& ids : texts.ids)
    out.captions_group.push_back(
        ids.empty() ? 0
                    : id_of({reinterpret_cast<const char*>(ids.data()), sizeof(std::int64_t) * ids.size()}));
}

// Chooses objects, prepares their boxes, and returns their texts.
RegionTexts SampleTransform::choose_regions(const Sample& sample, const SampleDraw& draw, PreparedSample& out) const {
  if (!sample.bad_boxes.empty()) throw SampleError("bad_box", concat("sample ", sample.key, ": ", sample.bad_boxes));
  const BoxViewSettings& settings = *settings_.boxes;
  Random random(seed_, Purpose::negatives, {static_cast<std::uint64_t>(draw.repeat), static_cast<std::uint64_t>(draw.index), kWordOfBoxes});
  std::vector<const ObjectAnnotation*> objects;
  if (has_image(sample)) objects = phrased_objects(sample);
  random.shuffle(objects);
  std::vector<Box> boxes;
  for (const ObjectAnnotation* object : objects) boxes.push_back(object->box);
  std::map<std::string, std::vector<SeenBox>> seen;
  const SampleDraw of_image = draw_of_image(sample, draw);
  if (!boxes.empty()) seen = images_.see(sample, boxes, of_image.index, of_image.repeat);
  std::vector<std::size_t> chosen;  // indices of objects; objects that no view shows are skipped
  for (std::size_t i = 0; i < objects.size() && std::ssize(chosen) < settings.count; ++i)
    if (seen.empty() || std::ranges::any_of(seen, [&](const auto& view) {
          return is_in_sight(view.second[i], settings.least_visible);
        }))
      chosen.push_back(i);
  RegionTexts texts;
  for (const std::size_t i : chosen) {
    texts.phrases.push_back(objects[i]->phrase);
    add_negatives(*objects[i], settings.negatives, random, texts.negatives);
  }
  texts.phrases.resize(static_cast<std::size_t>(settings.count));
  texts.negatives.resize(static_cast<std::size_t>(settings.count * settings.negatives));
  for (const auto& [view, wanted] : needs_.images)
    if (wanted.boxes) out.boxes[view].resize(static_cast<std::size_t>(settings.count));
  for (const auto& [view, shown] : seen)
    for (std::size_t r = 0; r < chosen.size(); ++r)
      if (const SeenBox& box = shown[chosen[r]]; is_in_sight(box, settings.least_visible))
        out.boxes[view][r] = box.corners;
  return texts;
}

// Encodes a text, and counts the tokens that the tokenizer's context cuts off.
TextCuts SampleTransform::encode(const std::string& text, std::vector<std::int64_t>& ids) const {
  ids = tokenizer_->encode(text);
  const std::int64_t kept = std::ssize(ids);
  const std::int64_t whole = kept < tokenizer_->context_length() ? kept : tokenizer_->count_ids(text);
  return {1, whole > kept ? 1 : 0, whole, whole - kept};
}

void SampleTransform::prepare_images(Sample& sample, const SampleDraw& draw, PreparedSample& out) const {
  if (needs_.duplicates) out.image_group = image_group_of(sample);
  bool pixels = false, regions = false;
  for (const auto& [view, wanted] : needs_.images) {
    const bool lacks = !(wanted.regions ? has_regions(sample) : has_image(sample));
    if (lacks && !wanted.optional && wanted.regions)
      throw SampleError("no_regions", "sample " + sample.key + " has no region features");
    if (lacks && !wanted.optional) throw_no_image(sample);
    if (wanted.regions && !lacks && region_width_ != 0 && sample.region_width != region_width_)
      throw SampleError("region_width", concat("sample ", sample.key, ": its region features are ", sample.region_width,
                                               " wide, but the model takes ", region_width_));
    (wanted.regions ? regions : pixels) |= !lacks;
  }
  if (pixels && features_)
    out.features = features_->read(sample.key, image_fingerprint(sample));
  else if (pixels)
    out.pixels = images_.make(sample, draw.index, draw.repeat, draw.max_patches);
  if (!regions) return;
  out.regions = std::move(sample.regions);
  out.region_width = sample.region_width;
  const std::int64_t kept = settings_.max_regions * out.region_width;
  if (kept == 0 || kept >= std::ssize(out.regions)) return;
  out.regions.resize(static_cast<std::size_t>(kept));
  out.regions.shrink_to_fit();
}

}  // namespace tessera
