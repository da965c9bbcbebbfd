#include "src/data/loading/text_views.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include <tessera/base/error.h>
#include <tessera/base/random.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>

namespace tessera {
namespace {

// Distinct constants in the keys of random numbers, so that the draws for `captions` and for negatives are independent of each other and
// of the draws for `caption`.
constexpr std::uint64_t kWordOfCaptions = 0x4B43, kWordOfNegatives = 0x4E47;

Random random_of(const TextDraw& draw, Purpose purpose, std::uint64_t word) {
  return {draw.seed, purpose, {static_cast<std::uint64_t>(draw.repeat), static_cast<std::uint64_t>(draw.index), word}};
}

// Whether a text is neither blank nor malformed UTF-8.
bool is_usable(const std::string& text) {
  return !strip(text).empty() && is_utf8(text);
}

[[noreturn]] void refuse(const Sample& sample, const std::string& reason, const std::string& problem) {
  throw SampleError(reason, concat("sample ", sample.key, problem));
}

// Appends `count` of the usable texts to `out`, in random order and without repetition. If there are fewer, empty texts fill the rest.
void add_some(std::vector<std::string> texts, std::int64_t count, Random& random, std::vector<std::string>& out) {
  std::erase_if(texts, [](const std::string& text) { return !is_usable(text); });
  random.shuffle(texts);
  texts.resize(static_cast<std::size_t>(count));
  std::ranges::move(texts, std::back_inserter(out));
}

// One of the sample's captions, its summary or its object tags. `choice` says which of several texts is used (caption_choice); if it is
// empty, there is only one.
TextView single_text(const std::string& name, std::span<const std::string> (*texts_of)(const Sample& sample), const std::string& choice = "") {
  const auto is_in = [=](const Sample& sample) {
    return std::ranges::any_of(texts_of(sample), [](const std::string& text) { return !text.empty(); });
  };
  const auto choose = [=](const Sample& sample, const TextDraw& draw) -> std::vector<std::string> {
    std::span<const std::string> texts = texts_of(sample);
    if (!choice.empty() && draw.caption >= 0)
      texts = draw.caption < std::ssize(texts) ? texts.subspan(static_cast<std::size_t>(draw.caption), 1) : texts.first(0);
    std::vector<std::string> usable;
    std::ranges::copy_if(texts, std::back_inserter(usable), is_usable);
    if (usable.empty() && std::ranges::any_of(texts, [](const auto& text) { return !strip(text).empty(); }))
      refuse(sample, "not_utf8", concat(": its ", name, " is not UTF-8"));
    if (usable.empty() && !draw.optional) refuse(sample, "no_" + name, " has no " + name);
    if (usable.empty()) return {""};
    if (choice != "random") return {usable[0]};
    const auto repeat = static_cast<std::uint64_t>(draw.repeat), index = static_cast<std::uint64_t>(draw.index);
    return {Random(draw.seed, Purpose::caption, {repeat, index}).pick(usable)};
  };
  return {name, 1, "", is_in, choose};
}

constexpr const char* kCaptionsField = "captions";

const TextField* find_field(const std::vector<TextField>& fields, const std::string& name) {
  const auto found = std::ranges::find(fields, name, &TextField::name);
  return found == fields.end() ? nullptr : &*found;
}

TextField captions_field(const Sample& sample) {
  return {{sample.captions, /*is_list=*/true}, kCaptionsField};
}

std::vector<std::string> named_anywhere(const CaptionViewSettings& settings) {
  std::vector<std::string> names = settings.fields.value_or(std::vector<std::string>());
  for (const CaptionSlots& slots : settings.slots)
    if (slots.fields) names.insert(names.end(), slots.fields->begin(), slots.fields->end());
  return names;
}

bool leaves_fields_unnamed(const CaptionViewSettings& settings) {
  const bool every_slot = !settings.slots.empty() &&
                          std::ranges::all_of(settings.slots, [](const auto& slots) { return slots.fields.has_value(); });
  return !settings.fields && !every_slot;
}

// The K captions of a sample as data.loader.captions describes. Fields are looked up by name; `captions` means the list of the sample's
// captions, unless the sample has a text field of that name. If the settings name no fields, sentences come from all text fields of the
// sample, or from its captions if it has no text fields; the choices `all` and `random` use the sample's captions. Texts that are blank or
// not UTF-8 are ignored.
class Captions {
 public:
  explicit Captions(const CaptionViewSettings& settings)
      : settings_(settings), named_(named_anywhere(settings)), uses_unnamed_(leaves_fields_unnamed(settings)) {}

  bool are_in(const Sample& sample) const { return !usable_fields(sample).empty(); }
  std::vector<std::string> choose(const Sample& sample, const TextDraw& draw) const {
    Random random = random_of(draw, Purpose::caption, kWordOfCaptions);
    const std::vector<TextField> fields = usable_fields(sample);
    CaptionSamplerSettings of_sample = settings_;
    if (!settings_.fields) {  // the default fields are the sample's own
      of_sample.fields.emplace();
      for (const TextField& field : unnamed_fields(sample)) of_sample.fields->push_back(field.name);
    }
    if (settings_.choice == "sentences")
      return CaptionSampler(std::move(of_sample)).sample(fields, [&] { return random.uniform(); });
    std::vector<std::string> out;
    for (const std::string& wanted : *of_sample.fields)
      if (const TextField* field = find_field(fields, wanted)) out.insert(out.end(), field->texts.begin(), field->texts.end());
    if (settings_.choice == "random") random.shuffle(out);
    out.resize(static_cast<std::size_t>(settings_.count));
    return out;
  }
  void check_wordless(const Sample& sample, bool optional) const {
    for (const TextField& field : fields_of(sample))
      if (!std::ranges::all_of(field.texts, is_utf8)) refuse(sample, "not_utf8", ": its captions are not UTF-8");
    if (!optional) refuse(sample, "no_captions", " has no text for captions; they come from " + describe_fields());
  }
  std::string describe_fields() const { return uses_unnamed_ ? "any text field or caption" : join_names(named_); }

 private:
  std::vector<TextField> unnamed_fields(const Sample& sample) const {
    if (settings_.choice == "sentences" && !sample.texts.empty()) return sample.texts;
    return {captions_field(sample)};
  }
  std::vector<TextField> fields_of(const Sample& sample) const {
    std::vector<TextField> out;
    if (uses_unnamed_) out = unnamed_fields(sample);
    for (const std::string& wanted : named_) {
      if (find_field(out, wanted) != nullptr) continue;
      if (const TextField* field = find_field(sample.texts, wanted))
        out.push_back(*field);
      else if (wanted == kCaptionsField)
        out.push_back(captions_field(sample));
    }
    return out;
  }
  std::vector<TextField> usable_fields(const Sample& sample) const {
    std::vector<TextField> fields = fields_of(sample);
    for (TextField& field : fields) std::erase_if(field.texts, [](const std::string& text) { return !is_usable(text); });
    std::erase_if(fields, [](const TextField& field) { return field.texts.empty(); });
    return fields;
  }

  CaptionViewSettings settings_;
  std::vector<std::string> named_;  // names of all fields that occur in the settings
  bool uses_unnamed_;               // whether some captions come from fields that the settings do not name
};

TextView several_captions(const CaptionViewSettings& settings, std::int64_t count) {
  const auto rules = std::make_shared<const Captions>(settings);
  return {"captions", count,
          "several captions of each image, but data.loader.captions is not set: set data.loader.captions.slots, as in [{count: 8, "
          "max_sentences: 3}], or choice: all and a count there",
          [=](const Sample& sample) { return count > 0 && rules->are_in(sample); },
          [=](const Sample& sample, const TextDraw& draw) { return rules->choose(sample, draw); },
          [=](const Sample& sample, bool optional) { rules->check_wordless(sample, optional); }, rules->describe_fields()};
}

// A view whose texts choose() takes from samples for which is_in() is true; from others if the view is optional.
TextView texts_if_in(const std::string& name, std::int64_t count, const std::string& unset, const std::function<bool(const Sample&)>& is_in,
                     const std::function<std::vector<std::string>(const Sample&, const TextDraw&)>& choose) {
  return {name, count, unset, is_in, [=](const Sample& sample, const TextDraw& draw) {
            if (!draw.optional && !is_in(sample)) refuse(sample, "no_" + name, " has no " + name);
            return choose(sample, draw);
          }};
}

// Hard negatives of the image, of the kinds that the settings name.
TextView negatives(const NegativeViewSettings& settings, std::int64_t count) {
  const auto chosen_kinds = [kinds = settings.kinds](const Sample& sample) {
    std::vector<std::string> out;
    for (const HardNegative& negative : sample.negatives)
      if (kinds.empty() || contains(kinds, negative.kind)) out.push_back(negative.caption);
    return out;
  };
  return texts_if_in(
      "negatives", count, "hard negatives of each image, but data.loader.negatives is not set: set it, as in {count: 1}",
      [=](const Sample& sample) { return std::ranges::any_of(chosen_kinds(sample), is_usable); },
      [=, wanted = settings.count](const Sample& sample, const TextDraw& draw) {
        Random random = random_of(draw, Purpose::negatives, kWordOfNegatives);
        std::vector<std::string> out;
        add_some(chosen_kinds(sample), wanted, random, out);
        return out;
      });
}

// The phrases of the objects whose boxes a sample's views show, or hard negatives of these phrases.
TextView object_texts(const char* name, std::vector<std::string> RegionTexts::*texts, std::int64_t count, const std::string& unset) {
  const auto is_in = [=](const Sample& sample) {
    return std::ranges::any_of(phrased_objects(sample), [=](const auto* object) {
      return texts == &RegionTexts::phrases || std::ranges::any_of(object->negatives, is_usable);
    });
  };
  return texts_if_in(name, count, unset, is_in, [=](const Sample&, const TextDraw& draw) { return draw.regions().*texts; });
}

}  // namespace

std::vector<TextView> make_text_views(const LoaderSettings& settings) {
  const std::int64_t captions = settings.captions ? captions_per_image(*settings.captions) : 0;
  const std::int64_t wrong = settings.negatives ? settings.negatives->count : 0, boxes = settings.boxes ? settings.boxes->count : 0;
  return {single_text("caption", [](const Sample& sample) { return std::span(sample.captions); }, settings.caption_choice),
          several_captions(settings.captions.value_or(CaptionViewSettings{}), captions),
          single_text("summary", [](const Sample& sample) { return std::span(&sample.summary, 1); }),
          single_text("objects", [](const Sample& sample) { return std::span(&sample.object_tags, 1); }),
          negatives(settings.negatives.value_or(NegativeViewSettings{}), wrong),
          object_texts("phrases", &RegionTexts::phrases, boxes, kBoxesUnset),
          object_texts("phrase_negatives", &RegionTexts::negatives, settings.boxes ? boxes * settings.boxes->negatives : 0,
                       boxes == 0 ? kBoxesUnset
                                  : "hard negatives of phrases, but data.loader.boxes.negatives is 0: set how many each phrase has")};
}

std::vector<std::string> usable_texts(const Sample& sample) {
  std::set<std::string> out(sample.captions.begin(), sample.captions.end());
  out.insert({sample.summary, sample.object_tags});
  for (const TextField& field : sample.texts) out.insert(field.texts.begin(), field.texts.end());
  for (const HardNegative& negative : sample.negatives) out.insert(negative.caption);
  for (const ObjectAnnotation& object : sample.objects) {
    out.insert(object.phrase);
    out.insert(object.negatives.begin(), object.negatives.end());
  }
  std::erase_if(out, [](const std::string& text) { return !is_usable(text); });
  return {out.begin(), out.end()};
}

void refuse_sentences(const Needs& needs, const LoaderSettings& settings, const char* setting) {
  if (needs.texts.contains(kCaptions) && settings.captions && settings.captions->choice == "sentences")
    user_error(setting, ": vectors are stored for whole texts, but data.loader.captions composes captions of sentences: set its choice to all "
               "or random");
}

std::vector<const ObjectAnnotation*> phrased_objects(const Sample& sample) {
  std::vector<const ObjectAnnotation*> out;
  for (const ObjectAnnotation& object : sample.objects)
    if (object.box[2] > 0 && object.box[3] > 0 && is_usable(object.phrase)) out.push_back(&object);
  return out;
}

void add_negatives(const ObjectAnnotation& object, std::int64_t count, Random& random, std::vector<std::string>& out) {
  add_some(object.negatives, count, random, out);
}

std::optional<config::Problem> validate(const CaptionViewSettings& settings) {
  const bool sentences = settings.choice == "sentences";
  if (sentences && settings.slots.empty())
    return config::Problem{"slots", "is not set; expected for example [{count: 8, max_sentences: 3}], or choice: all or "
                                    "random with a count"};
  if (sentences && settings.count > 0)
    return config::Problem{"count", "is for the choices all and random; with choice: sentences the slots have counts"};
  if (!sentences && settings.count == 0)
    return config::Problem{"count", concat("is not set; expected the number of captions per image for choice: ", settings.choice)};
  if (!sentences && !settings.slots.empty())
    return config::Problem{"slots", concat("are for choice: sentences; with choice: ", settings.choice, " set only count")};
  return std::nullopt;
}

std::int64_t captions_per_image(const CaptionViewSettings& settings) {
  return settings.choice == "sentences" ? CaptionSampler(settings).count() : settings.count;
}

}  // namespace tessera
