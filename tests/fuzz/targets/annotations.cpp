// Reads samples' JSON side files, which hold annotations and captions.
#include "src/data/formats/json_values.h"
#include "src/data/sources/rows.h"

#include "tests/fuzz/target.h"
#include <tessera/base/text.h>

namespace tessera::fuzz {

namespace {

struct SideRow : Row {
  nlohmann::json value(const std::string& name) const override { return fields.is_object() ? fields.value(name.substr(5), nlohmann::json()) : fields; }
  std::optional<std::string> file(const std::string&, const char*) const override { return std::nullopt; }
  const nlohmann::json* side() const override { return fields.is_object() ? &fields : nullptr; }
  nlohmann::json fields;
};

}  // namespace

void fuzz_annotations(std::string_view input) {
  Sample sample;
  sample.captions = {"a cat"};
  RowSettings settings;
  settings.caption_keys = {"json.caption", "json.captions"};
  SideRow row;
  row.fields = parse_python_json(input);
  RowMapper(settings, {.side_prefix = "json."}).read_fields(row, sample);
  require(!sample.captions.empty(), "annotations: a caption is lost");
  for (const std::string& caption : sample.captions) require(is_utf8(caption), "annotations: a caption is not UTF-8");
  for (const ObjectAnnotation& object : sample.objects) {
    require(is_utf8(object.phrase), "annotations: a phrase");
    for (const std::string& negative : object.negatives) require(is_utf8(negative), "annotations: a phrase's negative");
  }
}

}  // namespace tessera::fuzz
