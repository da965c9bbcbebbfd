#include "src/serving/request.h"

#include <algorithm>
#include <semaphore>
#include <thread>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include <tessera/base/text.h>
#include <tessera/data/image/transforms.h>

namespace tessera::serving {
namespace {

constexpr int kDeepest = 16;  // levels of brackets; the deepest body of the API has 4

/// Returns whether brackets outside of strings are nested deeper than kDeepest. (The parser itself has no such limit, and every level of a
/// value takes memory.)
bool is_too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

/// Returns the part of a data URL after "base64,", or the whole text if it is no data URL.
std::string_view base64_part(std::string_view url, const std::string& field) {
  if (url.starts_with("http://") || url.starts_with("https://"))
    bad_request(field, field, ": this server fetches no addresses: send the image itself, as base64 or as a data URL");
  if (!url.starts_with("data:")) return url;
  const std::size_t comma = url.find(',');
  if (comma == std::string_view::npos || !url.substr(0, comma).ends_with(";base64"))
    bad_request(field, field, ": expected a data URL of the form data:image/jpeg;base64,...");
  return url.substr(comma + 1);
}

}  // namespace

Body::Body(std::string_view text, const std::vector<std::string>& known, const Limits& limits) : limits_(limits) {
  if (is_too_deep(text)) bad_request("", "the body is nested deeper than ", kDeepest, " levels");
  json_ = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json_.is_discarded()) bad_request("", "the body is not valid JSON in UTF-8");
  if (!json_.is_object()) bad_request("", "the body must be a JSON object with the fields ", join_names(known));
  for (const auto& [name, value] : json_.items())
    if (!contains(known, name)) bad_request(name, "unknown field ", printable(name, 60), suggestion(name, known));
}

const nlohmann::json& Body::at(const std::string& field) const {
  if (!has(field)) bad_request(field, "the field ", field, " is missing");
  return json_.at(field);
}

std::string Body::checked(const std::string& field, const nlohmann::json& value) const {
  if (!value.is_string()) bad_request(field, field, ": expected a text, got ", value.type_name());
  const auto& text = value.get_ref<const std::string&>();
  if (std::ssize(text) > limits_.text_bytes)
    bad_request(field, field, ": a text has ", with_thousands(std::ssize(text)), " bytes, but at most ", with_thousands(limits_.text_bytes),
                " are taken");
  return text;
}

std::string Body::text(const std::string& field, const std::string& usual) const {
  return has(field) ? checked(field, json_.at(field)) : usual;
}

std::string Body::choice(const std::string& field, const std::vector<std::string>& choices) const {
  const std::string chosen = text(field, choices.front());
  if (!contains(choices, chosen))
    bad_request(field, field, ": expected one of ", join_names(choices), ", got ", printable(chosen, 60));
  return chosen;
}

std::int64_t Body::number(const std::string& field, std::int64_t usual, std::int64_t least, std::int64_t most) const {
  if (!has(field)) return usual;
  const nlohmann::json& value = json_.at(field);
  // A number above the largest int64 is unsigned, and therefore out of range.
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
  if (!fits || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
    bad_request(field, field, ": expected a whole number from ", least, " to ", most);
  return value.get<std::int64_t>();
}

bool Body::flag(const std::string& field) const {
  if (!has(field)) return false;
  if (!json_.at(field).is_boolean()) bad_request(field, field, ": expected true or false");
  return json_.at(field).get<bool>();
}

std::vector<nlohmann::json> Body::items(const std::string& field) const {
  const nlohmann::json& value = at(field);
  std::vector<nlohmann::json> out;
  if (value.is_array())
    out.assign(value.begin(), value.end());
  else
    out.push_back(value);
  if (out.empty()) bad_request(field, field, ": is empty");
  if (std::ssize(out) > limits_.inputs)
    bad_request(field, field, ": has ", with_thousands(std::ssize(out)), " items, but a request takes at most ", with_thousands(limits_.inputs));
  return out;
}

std::vector<std::string> Body::texts(const std::string& field) const {
  std::vector<std::string> out;
  for (const nlohmann::json& item : items(field)) out.push_back(checked(field, item));
  return out;
}

std::string Body::image_bytes(const std::string& field, const nlohmann::json& value) const {
  const nlohmann::json* url = &value;
  if (url->is_object() && url->value("type", nlohmann::json("image_url")) == "image_url" && url->contains("image_url")) url = &url->at("image_url");
  if (url->is_object() && url->contains("url")) url = &url->at("url");
  if (!url->is_string())
    bad_request(field, field, ": expected an image as base64, as a data URL, or as {\"type\": \"image_url\", \"image_url\": {\"url\": "
                              "\"data:...\"}}");
  try {
    return base64_decode(base64_part(url->get_ref<const std::string&>(), field));
  } catch (const UserError&) {
    bad_request(field, field, ": an image is not valid base64");
  }
}

std::vector<std::string> Body::images(const std::string& field) const {
  std::vector<std::string> out;
  for (const nlohmann::json& item : items(field)) out.push_back(image_bytes(field, item));
  return out;
}

std::vector<Body::Input> Body::inputs(const std::string& field, bool all_images) const {
  std::vector<Input> out;
  for (const nlohmann::json& item : items(field)) {
    if (item.is_number() || item.is_array())
      bad_request(field, field, ": token ids are not taken, because they are those of another vocabulary: send texts");
    const bool is_text_part = item.is_object() && item.value("type", nlohmann::json()) == "text" && item.contains("text");
    const bool is_image = all_images || item.is_object() || (item.is_string() && item.get_ref<const std::string&>().starts_with("data:image/"));
    if (is_text_part)
      out.emplace_back(Text{checked(field, item.at("text"))});
    else if (is_image)
      out.emplace_back(ImageFile{image_bytes(field, item)});
    else
      out.emplace_back(Text{checked(field, item)});
  }
  return out;
}

DecodedImage decode_input(const std::string& file, const Preprocessing& preprocessing, const Limits& limits, const std::string& field) {
  static std::counting_semaphore<> places(std::max(1U, std::thread::hardware_concurrency()));
  struct Place {
    Place() { places.acquire(); }
    ~Place() { places.release(); }
  } const place;
  try {
    const Image image = decode_image(file, limits.pixels, preprocessing);
    const auto [top, left, height, width] = preprocessed_part(image.height, image.width, preprocessing);
    const auto rows = static_cast<double>(image.height), columns = static_cast<double>(image.width);
    return {to_tensor(preprocess(image, preprocessing)), {left / columns, top / rows, (left + width) / columns, (top + height) / rows}};
  } catch (const SampleError& error) {
    bad_request(field, field, ": ", error.what());
  }
}

}  // namespace tessera::serving
