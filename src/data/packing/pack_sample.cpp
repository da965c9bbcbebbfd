#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/base/dump_utf8.h"
#include "src/data/formats/json_values.h"
#include "src/data/formats/image_endings.h"
#include "src/data/image/encode.h"
#include "src/data/image/image_file.h"
#include "src/data/image/orientation.h"
#include "src/data/image/decode.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/data/packing/pack_sample.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/image/transforms.h>
#include <tessera/data/source.h>

namespace tessera {
namespace {

// A name in a tar header has at most 100 bytes: the key, up to 18 bytes that make it unique in its shard, a dot, and up to 11 bytes of
// member name.
constexpr std::size_t kLongestKey = 70;
constexpr std::int64_t kTarBlock = 512;

std::string without_image_extension(std::string name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos || dot == 0) return name;
  std::string extension = name.substr(dot + 1);
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* known : kImageEndings)
    if (extension == known) return name.substr(0, dot);
  return name;
}

// Returns at most the first `count` bytes without splitting a character.
std::string first_bytes(const std::string& text, std::size_t count) {
  while (count > 0 && (static_cast<unsigned char>(text[count]) & 0xC0U) == 0x80U) --count;
  return text.substr(0, count);
}

// Changes the captions to what a reader will return: strips white space, and drops captions that are blank or not UTF-8. Updates the
// objects' references to captions.
void clean_captions(Sample& sample) {
  std::vector<std::string> out;
  std::vector<std::int64_t> place;  // new index of each caption; -1: dropped
  bool undecodable = false;
  for (const std::string& caption : sample.captions) {
    const std::string text(strip(caption));
    undecodable = undecodable || !is_utf8(text);
    const bool stays = !text.empty() && is_utf8(text);
    place.push_back(stays ? std::ssize(out) : -1);
    if (stays) out.push_back(text);
  }
  if (out.empty() && undecodable) throw SampleError("not_utf8", "sample " + sample.key + ": its caption is not UTF-8");
  if (out.empty() && !sample.captions.empty())
    throw SampleError("no_caption", "sample " + sample.key + ": its captions are blank");
  for (ObjectAnnotation& object : sample.objects) {
    const bool there = object.caption >= 0 && object.caption < std::ssize(place);
    const std::int64_t now = there ? place[static_cast<std::size_t>(object.caption)] : -1;
    if (now < 0) object.span = {};
    object.caption = std::max<std::int64_t>(now, 0);
  }
  sample.captions = std::move(out);
}

// Resizes an array with one value per pixel by nearest neighbor sampling, because the values must not be mixed.
template <class T>
std::vector<T> resized(const std::vector<T>& values, const Image& from, const Image& to) {
  if (values.size() != static_cast<std::size_t>(from.height * from.width)) return values;
  std::vector<T> out;
  out.reserve(static_cast<std::size_t>(to.height * to.width));
  const auto source = [](std::int64_t place, std::int64_t old_side, std::int64_t new_side) {
    return std::min((2 * place + 1) * old_side / (2 * new_side), old_side - 1);  // old pixel in which new pixel `place` has its center
  };
  for (std::int64_t y = 0; y < to.height; ++y)
    for (std::int64_t x = 0; x < to.width; ++x)
      out.push_back(values[static_cast<std::size_t>(source(y, from.height, to.height) * from.width +
                                                    source(x, from.width, to.width))]);
  return out;
}

// If `width` and `height` in the side file's fields are the size of `from`, changes them to the size of `to`.
void update_size(std::string& fields, const Image& from, const Image& to) {
  nlohmann::json json = nlohmann::json::parse(fields, nullptr, false);
  if (!json.is_object()) return;
  const auto is = [&](const char* name, std::int64_t side) {
    const auto found = json.find(name);
    return found != json.end() && found->is_number() && found->get<double>() == static_cast<double>(side);
  };
  if (!is("width", from.width) || !is("height", from.height)) return;
  json["width"] = to.width;
  json["height"] = to.height;
  fields = dump_utf8(json);
}

// Scales a box along one side of the image. A box that begins inside the image still does, and one that is not empty keeps a pixel.
void scale_extent(std::int64_t& begin, std::int64_t& length, double scale, std::int64_t old_side, std::int64_t new_side) {
  const std::int64_t last = begin < old_side ? new_side - 1 : std::numeric_limits<std::int64_t>::max();
  begin = std::min<std::int64_t>(std::llround(scale * static_cast<double>(begin)), last);
  if (length > 0) length = std::max<std::int64_t>(std::llround(scale * static_cast<double>(length)), 1);
}

// Shrinks the image, and everything that is measured in its pixels, so that the shorter side has `shorter` pixels.
void shrink(Sample& sample, std::int64_t shorter) {
  const Image& old = sample.image;
  const double scale = static_cast<double>(shorter) / static_cast<double>(std::min(old.height, old.width));
  const auto scaled = [&](std::int64_t side) {
    return std::max<std::int64_t>(1, std::llround(scale * static_cast<double>(side)));
  };
  Image image = resize(old, scaled(old.height), scaled(old.width), "bicubic");
  sample.mask = resized(sample.mask, old, image);
  sample.depth = resized(sample.depth, old, image);
  for (ObjectAnnotation& object : sample.objects) {
    scale_extent(object.box[0], object.box[2], scale, old.height, image.height);
    scale_extent(object.box[1], object.box[3], scale, old.width, image.width);
  }
  update_size(sample.fields, old, image);
  sample.image = std::move(image);
}

void prepare_image(Sample& sample, const PackSettings& settings) {
  std::string file = sample.encoded;
  ImageNotes notes;
  sample.image =
      take_image(sample, {.gray_range = settings.gray_range}, &notes);  // throws if the image cannot be decoded
  const bool too_large = settings.resize > 0 && std::min(sample.image.height, sample.image.width) > settings.resize;
  if (too_large) shrink(sample, settings.resize);
  // A resized image keeps its orientation, as its mask and boxes do.
  if (too_large || file.empty())
    file = with_orientation(settings.format == "png" ? encode_png(sample.image)
                                                     : encode_jpeg(sample.image, static_cast<int>(settings.quality)),
                            notes.orientation);
  sample.encoded = std::move(file);
  sample.image = {};
}

void clean_texts(Sample& sample) {
  clean_captions(sample);
  sample.summary = strip(repair_utf8(sample.summary));
  sample.object_tags = strip(repair_utf8(sample.object_tags));
  for (ObjectAnnotation& object : sample.objects) {
    object.phrase = repair_utf8(object.phrase);
    for (std::string& negative : object.negatives) negative = repair_utf8(negative);
  }
  for (HardNegative& negative : sample.negatives) {
    negative.kind = repair_utf8(negative.kind);
    negative.caption = repair_utf8(negative.caption);
  }
}

using OrderedJson = nlohmann::ordered_json;

std::string extension_of(const std::string& encoded) {
  if (encoded.starts_with("\x89PNG")) return "png";
  if (encoded.starts_with("RIFF")) return "webp";
  if (encoded.starts_with("GIF8")) return "gif";
  if (encoded.starts_with("BM")) return "bmp";
  if (encoded.starts_with("II") || encoded.starts_with("MM")) return "tiff";
  return "jpg";
}

OrderedJson describe_objects(const std::vector<ObjectAnnotation>& objects, const std::vector<std::string>& class_names) {
  OrderedJson list = OrderedJson::array();
  for (const ObjectAnnotation& object : objects) {
    OrderedJson item = {{"label", object.label}};
    if (object.label >= 0 && object.label < static_cast<std::int64_t>(class_names.size()))
      item["class"] = class_names[static_cast<std::size_t>(object.label)];
    item.update({{"box", object.box}, {"phrase", object.phrase}, {"span", object.span}, {"caption", object.caption}});
    if (!object.negatives.empty()) item["negatives"] = object.negatives;
    list.push_back(std::move(item));
  }
  return list;
}

/// Whether the field `caption` holds nothing but captions of the sample.
bool repeats_captions(const OrderedJson& caption, const Sample& sample) {
  const auto is_known = [&](const OrderedJson& text) {
    return text.is_string() && contains(sample.captions, strip(text.get_ref<const std::string&>()));
  };
  return caption.is_array() ? std::ranges::all_of(caption, is_known) : is_known(caption);
}

/// Returns the fields of the sample's own side file and its text fields, with two changes. If the field `caption` holds other texts than
/// the sample's captions, it is renamed, because otherwise a reader would use them as captions. The side file's field `regions` is left
/// out, because the objects contain its boxes; if one of these boxes is invalid, the field is renamed instead.
OrderedJson kept_fields(const Sample& sample) {
  OrderedJson json = sample.fields.empty() ? OrderedJson::object() : OrderedJson::parse(sample.fields, nullptr, false);
  if (!json.is_object()) json = OrderedJson::object();
  if (const auto regions = json.find("regions"); regions != json.end() && holds_regions(nlohmann::json(*regions))) {
    if (!sample.bad_boxes.empty()) json["original_regions"] = OrderedJson(*regions);
    json.erase("regions");
  }
  for (const TextField& field : sample.texts)
    if (!json.contains(field.name)) json[field.name] = field.is_list ? OrderedJson(field.texts) : OrderedJson(field.texts.at(0));
  if (const auto caption = json.find("caption"); caption != json.end() && !repeats_captions(*caption, sample)) {
    json["original_caption"] = OrderedJson(*caption);
    json.erase("caption");
  }
  return json;
}

std::string annotations(const Sample& sample, const std::vector<std::string>& class_names) {
  OrderedJson json = kept_fields(sample);
  json["captions"] = sample.captions;
  if (!sample.summary.empty()) json["summary"] = sample.summary;
  if (!sample.object_tags.empty()) json["object_tags"] = sample.object_tags;
  if (sample.label >= 0) {
    json["label"] = sample.label;
    if (sample.label < static_cast<std::int64_t>(class_names.size()))
      json["class"] = class_names[static_cast<std::size_t>(sample.label)];
  }
  if (!sample.class_name.empty()) json["class"] = sample.class_name;
  if (!sample.objects.empty()) json["objects"] = describe_objects(sample.objects, class_names);
  if (!sample.negatives.empty()) json["negatives"] = OrderedJson::array();
  for (const HardNegative& negative : sample.negatives)
    json["negatives"].push_back({{"kind", negative.kind}, {"caption", negative.caption}});
  return dump_utf8(json);
}

constexpr std::size_t kShortWord = 4;  // bytes; shorter words are mostly articles and prepositions

using Words = std::vector<std::string>;

bool is_word_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte) != 0;
}

// Returns the letters and digits of a word, with ASCII letters in lower case; empty if it has none.
std::string plain(const std::string& word) {
  std::string out;
  for (const char c : word)
    if (is_word_byte(c)) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string without_brackets(const std::string& text) {
  std::string out;
  int depth = 0;
  for (const char c : text) {
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (depth == 0) out += c;
    if ((c == ')' || c == ']' || c == '}') && depth > 0) --depth;
  }
  // An unclosed bracket is probably a typo, so the text is kept.
  return depth == 0 ? out : text;
}

bool is_link_or_tag(const std::string& word) {
  return word.starts_with("http://") || word.starts_with("https://") || word.starts_with("www.") ||
         word.starts_with("#") || word.starts_with("@");
}

bool ends_sentence(const std::string& word) {
  return std::string_view(".!?;").find(word.back()) != std::string_view::npos;
}

// Splits a caption into sentences, and each sentence into words.
std::vector<Words> split_sentences(const std::string& caption) {
  std::vector<Words> out(1);
  for (const std::string& line : split(without_brackets(caption), '\n')) {
    for (const std::string& word : split(line, ' ')) {
      const std::string text(strip(word));
      if (text.empty() || is_link_or_tag(text)) continue;
      out.back().push_back(text);
      if (ends_sentence(text)) out.emplace_back();
    }
    out.emplace_back();
  }
  std::erase_if(out, [](const Words& sentence) {
    return std::all_of(sentence.begin(), sentence.end(), [](const std::string& word) { return plain(word).empty(); });
  });
  return out;
}

double score(const Words& sentence, const std::map<std::string, int>& frequency) {
  double sum = 0, count = 0;
  for (const std::string& word : sentence)
    if (const auto found = frequency.find(plain(word)); found != frequency.end()) sum += found->second, ++count;
  return count > 0 ? sum / count : 0;
}

std::string shortened(const Words& sentence, std::size_t max_words) {
  std::size_t end = std::min(max_words, sentence.size());
  if (end < sentence.size())
    for (std::size_t i = end; i > max_words / 2; --i)
      if (sentence[i - 1].ends_with(',')) {
        end = i;
        break;
      }
  std::string out;
  for (std::size_t i = 0; i < end; ++i) out += (i == 0 ? "" : " ") + sentence[i];
  while (!out.empty() && std::string_view(".,;:!?-").find(out.back()) != std::string_view::npos) out.pop_back();
  return std::string(strip(out));
}

}  // namespace

std::int64_t PackedSample::bytes() const {
  std::int64_t total = 0;
  for (const SampleFile& file : files)
    total += kTarBlock + (static_cast<std::int64_t>(file.content.size()) + kTarBlock - 1) / kTarBlock * kTarBlock;
  return total;
}

std::string shard_key(const std::string& key) {
  std::string text = repair_utf8(key);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32 || c == '\\') c = '_';
  std::string out;
  const std::vector<std::string> folders = split(text, '/');
  for (std::size_t i = 0; i < folders.size(); ++i) {
    std::string name = folders[i];
    if (i + 1 == folders.size()) {
      name = without_image_extension(name);
      std::replace(name.begin(), name.end(), '.', '_');
      if (name.empty()) name = "_";
    } else if (name.empty()) {
      continue;
    } else if (name == "." || name == "..") {
      name = "_";
    }
    out += out.empty() ? name : "/" + name;
  }
  if (out.size() <= kLongestKey) return out;
  return first_bytes(out, kLongestKey - 17) + "-" + hexadecimal(fingerprint(key));
}

void pack_sample(Sample& sample, const PackSettings& settings, const std::vector<std::string>& class_names, double depth_units,
                 PackedSample& out) {
  clean_texts(sample);
  if (settings.summarize && sample.summary.empty()) sample.summary = summarize(sample.captions);
  prepare_image(sample, settings);
  sample.key = shard_key(sample.key);
  out.files = sample_files(sample, class_names, settings.format, depth_units);
  out.digest = compute_digest(sample);
  out.key = sample.key;
}

std::vector<SampleFile> sample_files(const Sample& sample, const std::vector<std::string>& class_names,
                                     const std::string& format, double depth_units) {
  std::vector<SampleFile> files;
  const auto add_text = [&](const char* name, const std::string& text) {
    if (!text.empty()) files.push_back({name, text});
  };
  if (!sample.encoded.empty())
    files.push_back({extension_of(sample.encoded), sample.encoded});
  else
    files.push_back({format, format == "png" ? encode_png(sample.image) : encode_jpeg(sample.image, 95)});
  if (!sample.captions.empty()) add_text("txt", sample.captions[0]);
  add_text("cls", sample.label >= 0 ? std::to_string(sample.label) : sample.class_name);
  const auto add_pixels = [&](const std::string& what, const auto& values, const auto& encode) {
    if (values.empty()) return;
    const ImageHeader header = read_image_header(sample.encoded);
    const std::int64_t height = sample.image.empty() ? header.height : sample.image.height;
    const std::int64_t width = sample.image.empty() ? header.width : sample.image.width;
    if (height * width != static_cast<std::int64_t>(values.size()))
      throw SampleError("bad_" + what, concat("sample ", sample.key, ": its ", what, " has ", values.size(),
                                              " pixels, its image ", height, " x ", width));
    files.push_back({what + ".png", encode(values, height, width)});
  };
  add_pixels("mask", sample.mask, encode_mask);
  add_pixels("depth", sample.depth, [depth_units](const std::vector<float>& depth, std::int64_t height, std::int64_t width) {
    return encode_depth(depth, height, width, depth_units);
  });
  add_text("summary.txt", sample.summary);
  add_text("objects.txt", sample.object_tags);
  if (sample.region_width > 0) {
    const std::int64_t rows = static_cast<std::int64_t>(sample.regions.size()) / sample.region_width;
    files.push_back({"regions.npy", encode_npy(sample.regions, rows, sample.region_width)});
  }
  files.push_back({"json", annotations(sample, class_names)});
  return files;
}

std::string summarize(const std::vector<std::string>& captions, std::size_t max_words) {
  std::vector<Words> sentences;
  for (const std::string& caption : captions)
    for (Words& sentence : split_sentences(caption)) sentences.push_back(std::move(sentence));
  if (sentences.empty()) return "";
  std::map<std::string, int> frequency;
  for (const Words& sentence : sentences)
    for (const std::string& word : sentence)
      if (const std::string text = plain(word); text.size() >= kShortWord) ++frequency[text];
  const auto best = std::max_element(sentences.begin(), sentences.end(), [&](const Words& a, const Words& b) {
    return score(a, frequency) < score(b, frequency);
  });
  return shortened(*best, max_words);
}

}  // namespace tessera
