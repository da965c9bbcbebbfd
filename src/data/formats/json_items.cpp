#include "src/data/formats/json_items.h"

#include <algorithm>
#include <vector>

#include "src/base/printable.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Json = nlohmann::json;
using Event = Json::parse_event_t;

/// A callback for nlohmann's parser. Depth 0 is the file's object, depth 1 its members, depth 2 the items of its lists.
class ItemParser {
 public:
  ItemParser(const std::string& path, const std::map<std::string, JsonItemReader>& readers)
      : path_(path), readers_(readers) {}

  // The parser discards values for which this returns false.
  bool operator()(int depth, Event event, Json& parsed) {
    if (depth == 0 && event == Event::array_start) user_error(path_, ": expected an object { }, got a list");
    if (depth == 1 && event == Event::key) begin_member(parsed.get_ref<const std::string&>());
    if (depth == 1 && event == Event::value && reader_ != nullptr)
      user_error(path_, ": ", printable(name_), ": expected a list, got ", parsed.type_name());
    if (depth == 1 && (event == Event::object_start || event == Event::array_start)) {
      if (reader_ != nullptr && event == Event::object_start)
        user_error(path_, ": ", printable(name_), ": expected a list, got an object");
      return reader_ != nullptr;
    }
    if (depth != 2 || reader_ == nullptr) return true;
    if (event == Event::value || event == Event::array_end)
      user_error(path_, ": ", printable(name_), "[", number_, "]: expected an object, got ", parsed.type_name());
    if (event != Event::object_end) return true;
    (*reader_)(JsonItem(parsed, concat(path_, ": ", name_, "[", number_, "]")));
    ++number_;
    return false;
  }

  void check_complete() const {
    for (const auto& [name, reader] : readers_)
      if (std::find(seen_.begin(), seen_.end(), name) == seen_.end())
        user_error(path_, ": has no list \"", name,
                   "\"; its members are: ", seen_.empty() ? "none" : printable(join_names(seen_), 500));
  }

 private:
  void begin_member(const std::string& name) {
    name_ = name;
    number_ = 0;
    if (seen_.size() < 20 || readers_.contains(name)) seen_.push_back(name);
    const auto found = readers_.find(name);
    reader_ = found == readers_.end() ? nullptr : &found->second;
  }

  const std::string& path_;
  const std::map<std::string, JsonItemReader>& readers_;
  std::vector<std::string> seen_;
  std::string name_;
  std::int64_t number_ = 0;
  const JsonItemReader* reader_ = nullptr;
};

}  // namespace

const Json& JsonItem::member(const char* name, const char* expected, bool (Json::*is_right)() const noexcept) const {
  const auto found = json_.find(name);
  if (found == json_.end()) user_error(place_, ": has no ", name, "; expected ", expected);
  if (!((*found).*is_right)()) user_error(place_, ".", name, ": expected ", expected, ", got ", found->type_name());
  return *found;
}

void for_each_item(const std::string& path, const std::map<std::string, JsonItemReader>& readers) {
  const std::string text = io::read_data_file(path);
  ItemParser parser(path, readers);
  try {
    const Json rest = Json::parse(text, std::ref(parser));
    if (!rest.is_object()) user_error(path, ": expected an object { }, got ", rest.type_name());
  } catch (const Json::parse_error& error) {
    const auto line = 1 + std::ranges::count(std::string_view(text).substr(0, error.byte), '\n');
    user_error(path, ":", line, ": is not JSON (byte ", error.byte, " of ", text.size(), ")",
               error.byte > text.size() ? ": the file is cut off" : "");
  } catch (const Json::out_of_range&) {
    user_error(path, ": holds a number that is too large for any type");
  }
  parser.check_complete();
}

}  // namespace tessera
