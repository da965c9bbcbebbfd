#include "src/data/loading/sample_transform.h"

#include <algorithm>
#include <optional>

#include <c10/util/Exception.h>

#include "src/data/loading/ordered_workers.h"
#include "src/data/loading/read_sample.h"
#include "src/data/loading/stream_reader.h"
#include <tessera/base/digest.h>
#include <tessera/base/error.h>
#include <tessera/base/random.h>
#include <tessera/base/text.h>
#include <tessera/data/image/transforms.h>

namespace tessera {
namespace {

constexpr std::int64_t kProbed = 32;  // samples looked at before a source is said to lack a field

const std::vector<std::string>& known_texts() {
  static const std::vector<std::string> names = {"caption", "summary", "objects"};
  return names;
}

std::vector<std::string> fields_of(const Sample& sample) {
  std::vector<std::string> names;
  if (!sample.encoded.empty() || !sample.image.empty()) names.emplace_back("image");
  if (!sample.captions.empty()) names.emplace_back("caption");
  if (!sample.summary.empty()) names.emplace_back("summary");
  if (!sample.object_tags.empty()) names.emplace_back("objects");
  if (!sample.regions.empty()) names.emplace_back("regions");
  if (sample.label >= 0) names.emplace_back("label");
  if (!sample.mask.empty()) names.emplace_back("mask");
  return names;
}

bool is_blank(const std::string& text) {
  return strip(text).empty();
}

std::uint64_t word(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

std::int64_t id_of(std::string_view bytes, std::uint64_t seed = 0) {
  return static_cast<std::int64_t>(fingerprint(bytes, seed) >> 1);
}

// The file's bytes where there are any, else pixels and width.
std::int64_t image_id_of(const Sample& sample) {
  if (sample.image.empty()) return id_of(sample.encoded);
  const auto& pixels = sample.image.pixels;
  return id_of({reinterpret_cast<const char*>(pixels.data()), pixels.size()}, word(sample.image.width));
}

}  // namespace

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
                            const SourceComponent& part) {
  const std::string known = part.source != nullptr ? part.source->describe_fields(needed) : "";
  return concat(found.empty() ? "none could be read" : "found " + join_names({found.begin(), found.end()}), "; needed ",
                join_names(needed), ". ",
                known.empty() ? "Check the source's settings (names of its parts or columns)" : known);
}

Image take_image(Sample& sample) {
  if (!sample.image.empty()) return std::move(sample.image);
  if (sample.encoded.empty()) throw SampleError("no_image", "sample " + sample.key + " has no picture");
  try {
    Image image = decode_image(sample.encoded);
    sample.encoded.clear();
    return image;
  } catch (const SampleError& error) {
    throw SampleError(error.reason(), "sample " + sample.key + ": " + error.what());
  }
}

SampleTransform::SampleTransform(std::shared_ptr<const Source> source, std::shared_ptr<const Tokenizer> tokenizer,
                               const Preprocessing& preprocessing, const LoaderSettings& settings, const Needs& needs,
                               std::uint64_t seed)
    : images_(preprocessing, settings, needs, seed),
      source_(std::move(source)),
      tokenizer_(std::move(tokenizer)),
      settings_(settings),
      needs_(needs),
      seed_(seed) {
  TORCH_CHECK(source_ != nullptr, "Loader: no source");
  TORCH_CHECK(tokenizer_ != nullptr || needs_.texts.empty(), "Loader: texts are needed, but there is no tokenizer");
  check_views();
  check_fields();
}

void SampleTransform::check_views() const {
  for (const auto& [view, wanted] : needs_.texts)
    if (std::find(known_texts().begin(), known_texts().end(), view) == known_texts().end())
      user_error("the objective asks for the text ", view,
                 ", but the data pipeline knows only: ", join_names(known_texts()));
}

std::string SampleTransform::missing_field(const Sample& sample) const {
  const std::vector<std::string> found = fields_of(sample);
  for (const std::string& name : needed_fields(needs_))
    if (std::find(found.begin(), found.end(), name) == found.end()) return name;
  return {};
}

// A source that lacks a field altogether is a mistake in the configuration: better said now than after minutes of
// rejects.
void SampleTransform::check_fields() const {
  for (const SourceComponent& part : components_of(*source_)) check_fields(part);
}

void SampleTransform::check_fields(const SourceComponent& part) const {
  const std::int64_t count = std::min(part.size, kProbed);
  std::set<std::string> found, missing;
  std::int64_t lacking = 0;
  const auto place = [count, part](std::int64_t i) { return part.first + i * part.size / count; };
  const std::shared_ptr<StreamReader> stream = stream_reader_of(source_);
  OrderedWorkers<std::optional<Sample>> samples(
      std::min(count, settings_.threads), settings_.threads, count,
      [source = source_, stream, settings = settings_, place](std::int64_t i, std::int64_t) -> std::optional<Sample> {
        try {
          if (stream) return stream->take(i, {0, i});
          return read_sample(*source, place(i), settings, pause_and_tell);
        } catch (const SampleError&) {
          return std::nullopt;  // the loader's business; it proves nothing about the others
        }
      });
  samples.abandon_after(kAbandonAfter);
  const StreamStop stop(stream);
  const WaitPolicy wait_policy{settings_.warn_after, settings_.timeout, part.described,
                          [&](std::int64_t i) { return source_->name_of(place(i)); }};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::optional<Sample> sample = samples.take(&wait_policy);
    if (!sample) continue;
    const std::string lacks = missing_field(*sample);
    if (lacks.empty()) return;
    ++lacking;
    missing.insert(lacks);
    for (const std::string& name : fields_of(*sample)) found.insert(name);
  }
  if (lacking == 0) return;
  user_error(part.described, ": none of the ", count, " samples looked at has all that the objective needs: missing ",
             join_names({missing.begin(), missing.end()}), "; ", describe_fields(found, needed_fields(needs_), part));
}

void PreparedSample::reject(const SampleError& error) {
  bad_reason = error.reason();
  bad_text = error.what();
  if (!error.key().empty()) key = error.key();
}

std::int64_t PreparedSample::bytes() const {
  auto total = static_cast<std::int64_t>(sizeof(float) * regions.capacity());
  for (const auto& [name, view] : pixels) total += static_cast<std::int64_t>(view.capacity());
  for (const auto& [name, tokens] : ids) total += static_cast<std::int64_t>(sizeof(std::int64_t) * tokens.capacity());
  return total;
}

PreparedSample SampleTransform::prepare(Sample sample, const SampleDraw& draw) const {
  PreparedSample out;
  out.key = sample.key;
  out.label = sample.label;
  try {
    prepare_fields(sample, draw, out);
  } catch (const SampleError& error) {
    out.reject(error);
    out.found = fields_of(sample);
  }
  return out;
}

void SampleTransform::prepare_fields(Sample& sample, const SampleDraw& draw, PreparedSample& out) const {
  // Texts first: they are cheap, and a sample without one needs no decoding.
  for (const auto& [view, wanted] : needs_.texts) {
    try {
      prepare_text(view, sample, draw, out);
    } catch (const SampleError& error) {
      if (!wanted.optional || error.reason() != "no_" + view) throw;
    }
  }
  bool pictures = false, picture_needed = false, regions = false;
  for (const auto& [view, wanted] : needs_.images) {
    regions |= wanted.regions;
    pictures |= !wanted.regions;
    picture_needed |= !wanted.regions && !wanted.optional;
    if (wanted.regions && !wanted.optional && (sample.regions.empty() || sample.region_width <= 0))
      throw SampleError("no_regions", "sample " + sample.key + " has no region features");
  }
  if (pictures && (picture_needed || !sample.image.empty() || !sample.encoded.empty())) {
    if (needs_.duplicates) out.image_group = image_id_of(sample);
    out.pixels = images_.make(sample, draw.index, draw.repeat);
  }
  if (regions) {
    out.regions = std::move(sample.regions);
    out.region_width = out.regions.empty() ? 0 : sample.region_width;
  }
}

void SampleTransform::prepare_text(const std::string& view, const Sample& sample, const SampleDraw& draw,
                                   PreparedSample& out) const {
  const std::string& text = choose_text(view, sample, draw);
  out.ids[view] = tokenizer_->encode(text);
  const std::string compared = needs_.texts.contains("caption") ? "caption" : needs_.texts.begin()->first;
  if (needs_.duplicates && view == compared) out.caption_group = id_of(text);
}

const std::string& SampleTransform::choose_text(const std::string& view, const Sample& sample,
                                               const SampleDraw& draw) const {
  const std::vector<std::string> single = {view == "summary" ? sample.summary : sample.object_tags};
  const bool is_caption = view == "caption";
  const std::vector<std::string>& texts = is_caption ? sample.captions : single;
  std::vector<std::size_t> usable;
  bool undecodable = false;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const bool is_wanted = !is_caption || draw.caption < 0 || draw.caption == static_cast<std::int64_t>(i);
    if (!is_wanted || is_blank(texts[i])) continue;
    if (is_utf8(texts[i]))
      usable.push_back(i);
    else
      undecodable = true;
  }
  if (usable.empty() && undecodable)
    throw SampleError("not_utf8", "sample " + sample.key + ": its " + view + " is not UTF-8");
  if (usable.empty()) throw SampleError("no_" + view, "sample " + sample.key + " has no " + view);
  if (!is_caption) return view == "summary" ? sample.summary : sample.object_tags;
  if (settings_.caption_choice != "random") return texts[usable[0]];
  return texts[Random(seed_, Purpose::caption, {word(draw.repeat), word(draw.index)}).pick(usable)];
}

}  // namespace tessera
