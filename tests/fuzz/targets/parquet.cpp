// Reads tables and filters. The first byte selects what the rest is: `t` a Parquet or Arrow file, `i` a list of ids, and `e` a condition,
// a line end and a JSON object.
#include <nlohmann/json.hpp>

#include "src/data/formats/column_file.h"
#include "src/data/formats/json_values.h"
#include "src/data/formats/row_filter.h"
#include "src/data/sources/tables.h"
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>
#include <tessera/data/source.h>

namespace tessera::fuzz {
namespace {

constexpr std::int64_t kRowsRead = 200, kMostJudged = 100'000;

void check_groups(const IndexedSource& source) {
  const std::vector<std::int64_t> starts = source.group_starts();
  require(starts.size() > 1 && starts.front() == 0 && starts.back() == source.size(),
          "parquet: groups do not cover the rows");
  for (std::size_t i = 1; i < starts.size(); ++i) require(starts[i - 1] < starts[i], "parquet: an empty group");
}

void check_rows(const IndexedSource& source) {
  const std::int64_t count = std::min(source.size(), kRowsRead);
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      const Sample sample = source.get(i);
      require(!sample.key.empty() && nlohmann::json::accept(sample.fields),
              "parquet: a row without a key, or with broken fields");
      require(source.captions(i) == sample.captions, "parquet: captions differ between get and captions");
      if (!sample.no_image.empty()) check_message(UserError(sample.no_image));
    } catch (const SampleError& error) {
      check_message(error);
      require(!error.reason().empty(), "parquet: a bad row without a reason");
    }
  }
}

void check_table(std::string_view input) {
  static InputFile file;
  file.write(input);
  ParquetSettings settings;
  settings.path = {{file.path()}};
  settings.caption_keys = {"caption", "texts", "meta.boxes.phrase"};
  settings.text_fields = {};
  const auto source = make_parquet(settings);
  check_groups(*source);
  check_rows(*source);
  if (source->size() > kMostJudged) return;
  const RowFilter filter("width > 100 and meta.source.name != 'book'", std::nullopt, "");
  const auto verdicts = dynamic_cast<const FieldSource&>(*source).judge(filter);
  require(std::ssize(verdicts) == source->size(), "parquet: verdicts and rows differ in number");
}

void check_expression(std::string_view input) {
  const std::size_t end = std::min(input.find('\n'), input.size());
  const RowFilter filter(std::string(input.substr(0, end)), std::nullopt, "");
  const FilterVerdict verdict = filter.judge(parse_python_json(input.substr(end)));
  require(verdict.kind == FilterVerdict::passes || filter.fields().empty() || verdict.field < filter.fields().size(),
          "parquet: an invalid field");
}

void check_ids(std::string_view input) {
  static InputFile file;
  file.write(input);
  const IdList ids(file.path());
  require(ids.size() >= 0 && static_cast<std::size_t>(ids.size()) <= input.size() / 16, "parquet: more ids than bytes");
  ids.contains({1, 2});
}

}  // namespace

void fuzz_parquet(std::string_view input) {
  if (input.empty()) return;
  allowing<UserError>([&] {
    if (input[0] == 'e')
      check_expression(input.substr(1));
    else if (input[0] == 'i')
      check_ids(input.substr(1));
    else if (can_read_columns())
      check_table(input.substr(1));
  });
}

}  // namespace tessera::fuzz
