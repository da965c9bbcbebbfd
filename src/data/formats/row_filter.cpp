#include "src/data/formats/row_filter.h"

#include <algorithm>
#include <limits>

#include "src/data/formats/column_path.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {

using Json = nlohmann::json;

RowFilter::RowFilter(const std::optional<std::string>& expression, const std::optional<std::string>& ids,
                     const std::string& id_field) {
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
  switch (verdict.kind) {
    case FilterVerdict::passes:
      ++passing_;
      break;
    case FilterVerdict::fails:
      ++failing_;
      break;
    case FilterVerdict::not_listed:
      ++not_listed_;
      break;
    case FilterVerdict::unreadable:
      ++unreadable_;
      break;
    case FilterVerdict::unknown:
    case FilterVerdict::no_id:
      ++lacking_[fields_[verdict.field]];
  }
}

std::int64_t FilterCounts::all() const {
  std::int64_t out = passing_ + failing_ + not_listed_ + unreadable_;
  for (const auto& [field, count] : lacking_) out += count;
  return out;
}

std::string FilterCounts::describe(const RowFilter& filter) const {
  std::string others;
  const auto add = [&](std::int64_t count, const std::string& what) {
    if (count > 0) others += concat(others.empty() ? ": " : ", ", with_thousands(count), " ", what);
  };
  add(failing_, "do not");
  add(not_listed_, "are not listed");
  for (const auto& [field, count] : lacking_) add(count, concat("lack ", field, " or have it of another type"));
  add(unreadable_, "cannot be read");
  return concat(with_thousands(passing_), " pass ", filter.described(), others);
}

std::string FilterCounts::field_of_none() const {
  return lacking_.size() == 1 && lacking_.begin()->second == all() ? lacking_.begin()->first : "";
}

Json json_member(const Json& object, const std::string& name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found != object.end() ? *found : value_below(object, split(name, '.'));
}

}  // namespace tessera
