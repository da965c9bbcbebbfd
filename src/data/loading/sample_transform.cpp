#include "src/data/loading/sample_transform.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>

#include <c10/util/Exception.h>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include "src/data/image/sample_picture.h"
#include "src/data/loading/ordered_workers.h"
#include "src/data/loading/sample_reader.h"
#include <tessera/base/error.h>
#include <tessera/base/random.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::int64_t kProbed = 32;  // number of samples to check before reporting that a source lacks a field

bool has_regions(const Sample& sample) {
  return !sample.regions.empty() && sample.region_width > 0;
}

// Returns the texts from which a single-text view is chosen.
std::span<const std::string> texts_for(const std::string& view, const Sample& sample) {
  if (view == "caption") return sample.captions;
  return {view == "summary" ? &sample.summary : &sample.object_tags, 1};
}

// Distinct constants in the keys of random numbers, so that the draws for `captions`, for negatives and for boxes are independent of each
// other and of the draws for `caption`.
constexpr std::uint64_t kWordOfCaptions = 0x4B43, kWordOfNegatives = 0x4E47, kWordOfBoxes = 0x4258;

bool is_blank(const std::string& text) {
  return strip(text).empty();
}

std::vector<std::string> usable_negatives(const Sample& sample, const NegativeViewSettings& settings) {
  const auto is_chosen = [&](const std::string& kind) {
    return settings.kinds.empty() || std::ranges::find(settings.kinds, kind) != settings.kinds.end();
  };
  std::vector<std::string> out;
  for (const HardNegative& negative : sample.negatives)
    if (is_usable(negative.caption) && is_chosen(negative.kind)) out.push_back(negative.caption);
  return out;
}

std::vector<std::string> usable_negatives(const ObjectAnnotation& object) {
  std::vector<std::string> out = object.negatives;
  std::erase_if(out, [](const std::string& text) { return !is_usable(text); });
  return out;
}

// Returns the objects with a box and a phrase.
std::vector<const ObjectAnnotation*> phrased_objects(const Sample& sample) {
  std::vector<const ObjectAnnotation*> out;
  for (const ObjectAnnotation& object : sample.objects)
    if (object.box[2] > 0 && object.box[3] > 0 && is_usable(object.phrase)) out.push_back(&object);
  return out;
}

// Appends `count` of the texts to `out`, in random order and without repetition. If there are fewer, empty texts fill the rest.
void add_some(std::vector<std::string> texts, std::int64_t count, Random& random, std::vector<std::string>& out) {
  random.shuffle(texts);
  texts.resize(static_cast<std::size_t>(count));
  std::ranges::move(texts, std::back_inserter(out));
}

bool has_several(const std::string& view, const Sample& sample, const LoaderSettings& settings) {
  if (view == kNegatives) return !usable_negatives(sample, settings.negatives.value_or(NegativeViewSettings{})).empty();
  const std::vector<const ObjectAnnotation*> objects = phrased_objects(sample);
  if (view == kPhrases) return !objects.empty();
  return std::ranges::any_of(objects, [](const auto* object) { return !usable_negatives(*object).empty(); });
}

bool is_in_sight(const SeenBox& box, double least_visible) {
  return box.visible > 0 && box.visible >= least_visible;
}

std::uint64_t word(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
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
  return has_picture(sample) ? to_id(picture_fingerprint(sample)) : lone_group(sample);
}

}  // namespace

const std::vector<std::string>& known_texts() {
  static const std::vector<std::string> names = {"caption", kCaptions, "summary",       "objects",
                                                 kNegatives, kPhrases, kPhraseNegatives};
  return names;
}

std::string compared_text(const Needs& needs) {
  if (needs.texts.contains("caption")) return "caption";
  const auto found = std::ranges::find_if(needs.texts, [](const auto& each) { return !holds_several_texts(each.first); });
  return found == needs.texts.end() ? std::string() : found->first;
}

std::map<std::string, std::int64_t> texts_per_image(const LoaderSettings& settings) {
  std::map<std::string, std::int64_t> out;
  if (settings.captions) out[kCaptions] = captions_per_image(*settings.captions);
  if (settings.negatives) out[kNegatives] = settings.negatives->count;
  if (settings.boxes) out[kPhrases] = settings.boxes->count;
  if (settings.boxes && settings.boxes->negatives > 0)
    out[kPhraseNegatives] = settings.boxes->count * settings.boxes->negatives;
  return out;
}

std::vector<std::string> needed_fields(const Needs& needs) {
  std::set<std::string> pictures;  // image, regions
  for (const auto& [name, view] : needs.images)
    if (!view.optional) pictures.insert(view.regions ? "regions" : "image");
  std::vector<std::string> needed(pictures.begin(), pictures.end());
  for (const auto& [name, view] : needs.texts)
    if (!view.optional) needed.push_back(name);
  return needed;
}

std::string describe_fields(const std::set<std::string>& found, const std::vector<std::string>& needed,
                            const SourceComponent& component) {
  const std::string known = component.source->describe_fields(needed);
  return concat(found.empty() ? "none could be read" : "found " + join_names({found.begin(), found.end()}), "; needed ",
                join_names(needed), ". ",
                known.empty() ? "Check the source's settings (names of its members or columns)" : known);
}

SampleTransform::SampleTransform(std::shared_ptr<const Source> source, std::shared_ptr<const Tokenizer> tokenizer,
                                 const Preprocessing& preprocessing, const LoaderSettings& settings, const Needs& needs,
                                 std::uint64_t seed, const LoaderTarget& target)
    : images_(preprocessing, settings, needs, seed),
      source_(std::move(source)),
      tokenizer_(std::move(tokenizer)),
      settings_(settings),
      needs_(needs),
      seed_(seed),
      region_width_(target.region_width),
      features_(target.features) {
  if (settings_.captions) captions_.emplace(*settings_.captions);
  TORCH_CHECK(source_ != nullptr, "Loader: no source");
  TORCH_CHECK(tokenizer_ != nullptr || needs_.texts.empty(), "Loader: texts are needed, but there is no tokenizer");
  check_views();
  if (std::ranges::any_of(needs_.texts, [](const auto& view) { return holds_several_texts(view.first); }))
    no_text_ = tokenizer_->encode("");
  if (features_) images_.check_fixed();
  check_fields();
}

void SampleTransform::check_views() const {
  for (const auto& [view, wanted] : needs_.texts)
    if (std::find(known_texts().begin(), known_texts().end(), view) == known_texts().end())
      user_error("the objective asks for the text ", view,
                 ", but the data pipeline knows only: ", join_names(known_texts()));
  if (needs_.texts.contains(kCaptions) && !captions_)
    user_error("the objective asks for several captions of each image, but data.loader.captions is not set: set "
               "data.loader.captions.slots, as in [{count: 8, max_sentences: 3}], or choice: all and a count there");
  if (needs_.texts.contains(kNegatives) && !settings_.negatives)
    user_error("the objective asks for hard negatives of each image, but data.loader.negatives is not set: set it, as in "
               "{count: 1}");
  if (wants_phrases() && !settings_.boxes)
    user_error("the objective asks for boxes of objects or their phrases, but data.loader.boxes is not set: set it, as in "
               "{count: 4, negatives: 10}");
  if (needs_.texts.contains(kPhraseNegatives) && settings_.boxes->negatives == 0)
    user_error("the objective asks for hard negatives of phrases, but data.loader.boxes.negatives is 0: set how many each "
               "phrase has");
}

// Whether boxes, phrases or negatives of phrases are needed.
bool SampleTransform::wants_phrases() const {
  return needs_.texts.contains(kPhrases) || needs_.texts.contains(kPhraseNegatives) ||
         std::ranges::any_of(needs_.images, [](const auto& view) { return view.second.boxes; });
}

std::vector<std::string> SampleTransform::fields_of(const Sample& sample) const {
  std::vector<std::string> names;
  if (has_picture(sample)) names.emplace_back("image");
  for (const std::string& view : known_texts()) {
    const bool is_there =
        view == kCaptions            ? captions_ && captions_->has_any(sample)
        : holds_several_texts(view) ? has_several(view, sample, settings_)
                                    : std::ranges::any_of(texts_for(view, sample), [](const auto& text) { return !text.empty(); });
    if (is_there) names.push_back(view);
  }
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
    if (std::find(found.begin(), found.end(), name) == found.end()) return name;
  return {};
}

bool SampleTransform::lacks_features(const Sample& sample) const {
  if (!features_ || !has_picture(sample)) return false;
  try {
    features_->read(sample.key, picture_fingerprint(sample));
    return false;
  } catch (const SampleError&) {
    return true;
  }
}

// A source that lacks a field altogether is a configuration error, which is better reported now than after minutes of
// skipped samples.
void SampleTransform::check_fields() const {
  for (const SourceComponent& component : source_->mixing().components) check_fields(component);
}

void SampleTransform::check_fields(const SourceComponent& component) const {
  const std::int64_t count = std::min(component.size, kProbed);
  std::set<std::string> found, missing;
  std::int64_t lacking = 0, without_features = 0;
  // Of a stream, the first samples are checked, because it would have to be read up to the others.
  const bool is_stream = std::holds_alternative<const StreamSource*>(source_->kind());
  const auto place = [=](std::int64_t i) { return component.first + (is_stream ? i : i * component.size / count); };
  const auto reader = make_ordered_reader(source_, settings_);
  OrderedWorkers<std::optional<Sample>> samples(
      std::min(count, settings_.threads), settings_.threads, count,
      [reader, place](std::int64_t i, std::int64_t) -> std::optional<Sample> {
        try {
          return reader->read_in_order(i, place(i));
        } catch (const SampleError&) {
          return std::nullopt;  // a bad sample does not show whether the source lacks a field; the loader will count it
        }
      });
  samples.abandon_after(kAbandonAfter);
  const ReaderStop stop(reader);
  const WaitPolicy wait_policy{settings_.warn_after, settings_.timeout, component.described,
                               [&](std::int64_t i) { return source_->name_of(place(i)); }};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::optional<Sample> sample = samples.take(&wait_policy);
    if (!sample) continue;
    const std::string lacks = missing_field(*sample);
    if (lacks.empty() && !lacks_features(*sample)) return;
    if (lacks.empty()) {
      ++without_features;
      continue;
    }
    ++lacking;
    missing.insert(lacks);
    for (const std::string& name : fields_of(*sample)) found.insert(name);
  }
  if (without_features > 0)
    user_error("data.features: ", features_->path(), " was written for other images (",
               printable(features_->manifest().data), "): it holds no features of the samples checked of ",
               component.described, "; write them again with trainer --write-features");
  if (lacking == 0) return;
  user_error(
      component.described, ": none of the ", count, " samples checked has all that the objective needs: missing ",
      join_names({missing.begin(), missing.end()}), "; ", describe_fields(found, needed_fields(needs_), component),
      missing.contains(kCaptions)
          ? concat("; captions come from ", captions_->describe_fields(), " (data.loader.captions)")
          : "");
}

void PreparedSample::reject(const SampleError& error) {
  bad_reason = error.reason();
  bad_text = error.what();
  if (!error.key().empty()) key = error.key();
}

std::int64_t PreparedSample::bytes() const {
  auto total = static_cast<std::int64_t>(sizeof(float) * regions.capacity() + features.capacity());
  for (const auto& [name, view] : pixels) total += static_cast<std::int64_t>(view.planes.capacity());
  for (const auto& [name, tokens] : ids) total += static_cast<std::int64_t>(sizeof(std::int64_t) * tokens.capacity());
  for (const auto& [name, texts] : several)
    for (const auto& tokens : texts.ids) total += static_cast<std::int64_t>(sizeof(std::int64_t) * tokens.capacity());
  return total;
}

PreparedSample SampleTransform::prepare(Sample sample, const SampleDraw& draw) const {
  PreparedSample out;
  out.key = sample.key;
  out.label = sample.label;
  try {
    // Texts first: they are cheap, and a sample without one needs no decoding.
    prepare_texts(sample, draw, out);
    if (wants_phrases()) prepare_phrases(sample, draw, out);
    prepare_images(sample, draw, out);
  } catch (const SampleError& error) {
    out.reject(error);
    out.found = fields_of(sample);
  }
  return out;
}

void SampleTransform::prepare_texts(const Sample& sample, const SampleDraw& draw, PreparedSample& out) const {
  if (needs_.texts.empty()) return;
  const std::string compared = compared_text(needs_);
  for (const auto& [view, wanted] : needs_.texts) {
    if (view == kCaptions) {
      prepare_captions(sample, draw, wanted.optional, out);
      continue;
    }
    if (holds_several_texts(view)) {
      if (!wanted.optional && !has_several(view, sample, settings_))
        throw SampleError("no_" + view, "sample " + sample.key + " has no " + view);
      if (view == kNegatives) prepare_negatives(sample, draw, out);
      continue;
    }
    const std::string* text = choose_text(view, sample, draw);
    if (text == nullptr && !wanted.optional)
      throw SampleError("no_" + view, "sample " + sample.key + " has no " + view);
    if (text != nullptr) out.ids[view] = encode(view, *text, out);
    if (needs_.duplicates && view == compared) out.caption_group = text != nullptr ? id_of(*text) : lone_group(sample);
  }
}

void SampleTransform::prepare_captions(const Sample& sample, const SampleDraw& draw, bool optional,
                                       PreparedSample& out) const {
  const Random random(seed_, Purpose::caption, {word(draw.repeat), word(draw.index), kWordOfCaptions});
  const PreparedTexts& captions = out.several[kCaptions] =
      encode_several(kCaptions, captions_->choose(sample, random), out);
  const bool any = std::ranges::any_of(captions.ids, [](const auto& ids) { return !ids.empty(); });
  if (!any && captions_->has_undecodable(sample))
    throw SampleError("not_utf8", "sample " + sample.key + ": its captions are not UTF-8");
  if (!any && !optional)
    throw SampleError("no_captions", concat("sample ", sample.key, " has no text for captions; they come from ",
                                            captions_->describe_fields()));
  if (!needs_.duplicates) return;
  for (const std::vector<std::int64_t>& ids : captions.ids)
    out.captions_group.push_back(
        ids.empty() ? 0
                    : id_of({reinterpret_cast<const char*>(ids.data()), sizeof(std::int64_t) * ids.size()}));
}

void SampleTransform::prepare_negatives(const Sample& sample, const SampleDraw& draw, PreparedSample& out) const {
  Random random(seed_, Purpose::negatives, {word(draw.repeat), word(draw.index), kWordOfNegatives});
  std::vector<std::string> texts;
  add_some(usable_negatives(sample, *settings_.negatives), settings_.negatives->count, random, texts);
  out.several[kNegatives] = encode_several(kNegatives, texts, out);
}

// Prepares boxes, phrases and negatives of phrases, all for the same objects.
void SampleTransform::prepare_phrases(const Sample& sample, const SampleDraw& draw, PreparedSample& out) const {
  if (!sample.bad_boxes.empty()) throw SampleError("bad_box", concat("sample ", sample.key, ": ", sample.bad_boxes));
  const BoxViewSettings& settings = *settings_.boxes;
  Random random(seed_, Purpose::negatives, {word(draw.repeat), word(draw.index), kWordOfBoxes});
  std::vector<const ObjectAnnotation*> objects;
  if (has_picture(sample)) objects = phrased_objects(sample);
  random.shuffle(objects);
  std::vector<Box> boxes;
  for (const ObjectAnnotation* object : objects) boxes.push_back(object->box);
  std::map<std::string, std::vector<SeenBox>> seen;
  if (!boxes.empty()) seen = images_.see(sample, boxes, draw.index, draw.repeat);
  std::vector<std::size_t> chosen;  // indices of objects; objects that no view shows are skipped
  for (std::size_t i = 0; i < objects.size() && std::ssize(chosen) < settings.count; ++i)
    if (seen.empty() || std::ranges::any_of(seen, [&](const auto& view) {
          return is_in_sight(view.second[i], settings.least_visible);
        }))
      chosen.push_back(i);
  std::vector<std::string> phrases, negatives;
  for (const std::size_t i : chosen) {
    phrases.push_back(objects[i]->phrase);
    add_some(usable_negatives(*objects[i]), settings.negatives, random, negatives);
  }
  phrases.resize(static_cast<std::size_t>(settings.count));
  negatives.resize(static_cast<std::size_t>(settings.count * settings.negatives));
  if (needs_.texts.contains(kPhrases)) out.several[kPhrases] = encode_several(kPhrases, phrases, out);
  if (needs_.texts.contains(kPhraseNegatives))
    out.several[kPhraseNegatives] = encode_several(kPhraseNegatives, negatives, out);
  for (const auto& [view, wanted] : needs_.images)
    if (wanted.boxes) out.boxes[view].resize(static_cast<std::size_t>(settings.count));
  for (const auto& [view, shown] : seen)
    for (std::size_t r = 0; r < chosen.size(); ++r)
      if (const SeenBox& box = shown[chosen[r]]; is_in_sight(box, settings.least_visible))
        out.boxes[view][r] = box.corners;
}

// Encodes the texts of a multi-text view. A text that is empty or has no words counts as absent.
PreparedTexts SampleTransform::encode_several(const std::string& view, const std::vector<std::string>& texts,
                                              PreparedSample& out) const {
  PreparedTexts several;
  for (const std::string& text : texts) {
    std::vector<std::int64_t>& ids = several.ids.emplace_back();
    const std::int64_t cut_before = out.cuts[view].cut_texts;
    if (!is_blank(text)) ids = encode(view, text, out);
    several.cut.push_back(out.cuts[view].cut_texts > cut_before);
    if (ids == no_text_) ids.clear();  // only special tokens: no text
  }
  return several;
}

// Encodes a text, and counts the tokens that the tokenizer's context cuts off.
std::vector<std::int64_t> SampleTransform::encode(const std::string& view, const std::string& text,
                                                  PreparedSample& out) const {
  std::vector<std::int64_t> ids = tokenizer_->encode(text);
  const std::int64_t kept = std::ssize(ids);
  const std::int64_t whole = kept < tokenizer_->context_length() ? kept : tokenizer_->count_ids(text);
  out.cuts[view] += {1, whole > kept ? 1 : 0, whole, whole - kept};
  return ids;
}

void SampleTransform::prepare_images(Sample& sample, const SampleDraw& draw, PreparedSample& out) const {
  if (needs_.duplicates) out.image_group = image_group_of(sample);
  bool pixels = false, regions = false;
  for (const auto& [view, wanted] : needs_.images) {
    const bool lacks = !(wanted.regions ? has_regions(sample) : has_picture(sample));
    if (lacks && !wanted.optional && wanted.regions)
      throw SampleError("no_regions", "sample " + sample.key + " has no region features");
    if (lacks && !wanted.optional) throw_no_image(sample);
    if (wanted.regions && !lacks && region_width_ != 0 && sample.region_width != region_width_)
      throw SampleError("region_width", concat("sample ", sample.key, ": its region features are ", sample.region_width,
                                               " wide, but the model takes ", region_width_));
    (wanted.regions ? regions : pixels) |= !lacks;
  }
  if (pixels && features_)
    out.features = features_->read(sample.key, picture_fingerprint(sample));
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

// Returns the text for a single-text view, or null if the sample lacks the text or it is blank.
const std::string* SampleTransform::choose_text(const std::string& view, const Sample& sample,
                                                const SampleDraw& draw) const {
  const bool is_caption = view == "caption";
  std::vector<const std::string*> usable;
  bool undecodable = false;
  std::int64_t number = 0;
  for (const std::string& text : texts_for(view, sample)) {
    const bool is_wanted = !is_caption || draw.caption < 0 || draw.caption == number;
    ++number;
    if (!is_wanted || is_blank(text)) continue;
    if (is_utf8(text))
      usable.push_back(&text);
    else
      undecodable = true;
  }
  if (usable.empty() && undecodable)
    throw SampleError("not_utf8", "sample " + sample.key + ": its " + view + " is not UTF-8");
  if (usable.empty()) return nullptr;
  if (!is_caption || settings_.caption_choice != "random") return usable[0];
  return Random(seed_, Purpose::caption, {word(draw.repeat), word(draw.index)}).pick(usable);
}

}  // namespace tessera
