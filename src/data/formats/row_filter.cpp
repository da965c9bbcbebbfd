#include "src/data/formats/row_filter.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "src/base/printable.h"
#include "src/data/formats/column_file.h"
#include "src/data/formats/npy.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::size_t kIdBytes = 2 * sizeof(std::uint64_t);
/// Finds the ids of a list as DataComp publishes it: pairs of uint64, a structured type or two columns. Throws BadNpy for other files.
std::string_view find_ids(std::string_view bytes) {
  const NpyFile file = parse_npy(bytes);
  std::string type(file.type);
  std::erase(type, ' ');
  if (type == "[('f0','<u8'),('f1','<u8')" && file.shape.size() == 1) return file.elements(kIdBytes);
  if (type == "'<u8'" && file.shape.size() == 2 && file.shape[1] == 2) return file.elements(sizeof(std::uint64_t));
  throw BadNpy(concat("its type is ", printable(file.type, 60), ", in ", file.shape.size(), " dimensions"));
}

}  // namespace

std::optional<SampleId> parse_sample_id(std::string_view text) {
  SampleId out{};
  if (text.size() != 32) return std::nullopt;
  for (std::size_t half = 0; half < 2; ++half) {
    const char *begin = text.data() + 16 * half, *end = begin + 16;
    const auto result = std::from_chars(begin, end, out[half], 16);
    if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  }
  return out;
}

IdList::IdList(const std::string& path) : file_(path) {
  try {
    const std::string_view ids = find_ids(file_.bytes());
    ids_ = ids.data();
    size_ = static_cast<std::int64_t>(ids.size() / kIdBytes);
  } catch (const BadNpy& error) {
    user_error(path, ": expected ids as pairs of uint64 (numpy's dtype \"u8,u8\", as DataComp publishes them) in a .npy file: ",
               error.what());
  }
  for (std::int64_t i = 1; i < size_; ++i) {
    if (at(i - 1) <= at(i)) continue;
    for (std::int64_t each = 0; each < size_; ++each) sorted_.push_back(at(each));
    std::ranges::sort(sorted_);
    break;
  }
}

SampleId IdList::at(std::int64_t index) const {
  SampleId out;
  std::memcpy(out.data(), ids_ + static_cast<std::size_t>(index) * kIdBytes, kIdBytes);
  return out;
}

bool IdList::contains(const SampleId& id) const {
  if (!sorted_.empty()) return std::ranges::binary_search(sorted_, id);
  std::int64_t begin = 0, end = size_;
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    const SampleId there = at(middle);
    if (there == id) return true;
    (there < id ? begin : end) = there < id ? middle + 1 : middle;
  }
  return false;
}

using Json = nlohmann::json;

RowFilter::RowFilter(const std::optional<std::string>& expression, const std::optional<std::string>& ids, const std::string& id_field) {
  if (expression) {
    expression_.emplace(*expression);
    fields_ = expression_->fields();
    described_ = "filter " + *expression;
  }
  if (ids) {
    ids_ = std::make_unique<const IdList>(*ids);
    const auto found = std::ranges::find(fields_, id_field);
    id_field_ = static_cast<std::size_t>(found - fields_.begin());
    if (found == fields_.end()) fields_.push_back(id_field);
    described_ += concat(described_.empty() ? "" : " and ", "filter_ids ", *ids);
  }
  if (fields_.size() > std::numeric_limits<std::uint8_t>::max())
    user_error("filter: uses ", fields_.size(), " fields; at most 255 are allowed");
}

FilterVerdict RowFilter::judge(const std::function<Json(std::size_t)>& value) const {
  if (expression_) {
    std::size_t lacking = 0;
    const Truth truth = expression_->of(value, &lacking);
    if (truth != Truth::yes)
      return {truth == Truth::no ? FilterVerdict::fails : FilterVerdict::unknown, static_cast<std::uint8_t>(lacking)};
  }
  if (!ids_) return {};
  const Json text = value(id_field_);
  const auto id = text.is_string() ? parse_sample_id(text.get_ref<const std::string&>()) : std::nullopt;
  if (!id) return {FilterVerdict::no_id, static_cast<std::uint8_t>(id_field_)};
  return {ids_->contains(*id) ? FilterVerdict::passes : FilterVerdict::not_listed, 0};
}

FilterVerdict RowFilter::judge(const Json& object) const {
  return judge([&](std::size_t field) { return json_member(object, fields_[field]); });
}

void FilterCounts::add(const FilterVerdict& verdict) {
  ++all_;
  ++counts_[verdict.kind];
  if (verdict.kind == FilterVerdict::unknown || verdict.kind == FilterVerdict::no_id) ++lacking_[fields_[verdict.field]];
}

std::string FilterCounts::describe(const RowFilter& filter) const {
  std::string others;
  const auto add = [&](std::int64_t count, const std::string& what) {
    if (count > 0) others += concat(others.empty() ? ": " : ", ", with_thousands(count), " ", what);
  };
  add(counts_[FilterVerdict::fails], "do not");
  add(counts_[FilterVerdict::not_listed], "are not listed");
  for (const auto& [field, count] : lacking_) add(count, concat("lack ", field, " or have it of another type"));
  add(counts_[FilterVerdict::unreadable], "cannot be read");
  return concat(with_thousands(passing()), " pass ", filter.described(), others);
}

std::string FilterCounts::field_of_none() const {
  return lacking_.size() == 1 && lacking_.begin()->second == all_ ? lacking_.begin()->first : "";
}

Json json_member(const Json& object, const std::string& name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found != object.end() ? *found : value_below(object, split(name, '.'));
}

}  // namespace tessera
