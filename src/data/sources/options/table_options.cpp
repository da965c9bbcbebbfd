#include <filesystem>
#include <map>

#include "src/data/formats/table.h"
#include "src/data/sources/options/layouts.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

/// Returns whether a table cell means true. Python writes True; pandas writes 1 or TRUE.
bool is_true(const std::string& text) {
  const std::string_view value = strip(text);
  return value == "True" || value == "true" || value == "TRUE" || value == "1" || value == "1.0";
}

}  // namespace

void read_svo_probes(const std::string& path, OptionBuilder& out) {
  Table table(path, ',');
  const auto column = [&](const char* name) { return table.column(name, "layout svo_probes"); };
  const std::size_t sentence = column("sentence"), right = column("pos_image_id"), wrong = column("neg_image_id");
  const std::map<std::string, std::size_t> kinds = {
      {"subject", column("subj_neg")}, {"verb", column("verb_neg")}, {"object", column("obj_neg")}};
  for (std::vector<std::string> row; table.next(row);) {
    const std::string place = concat(path, ":", table.line());
    OptionItem item{{}, {row[sentence]}, {}};
    for (const auto& [name, number] : kinds)
      if (is_true(row[number])) item.kind = name;
    for (const std::size_t picture : {right, wrong}) {
      const std::string name(strip(row[picture]));
      if (name.empty()) user_error(place, ": names no image (column ", table.columns()[picture], ")");
      item.pictures.push_back(out.picture(name));
    }
    out.add(std::move(item), place);
  }
}

void read_mmvp(const std::string& path, OptionBuilder& out) {
  Table table(path, ',');
  if (table.columns().size() < 3)
    user_error(path, ": has the columns ", join_names(table.columns()),
               "; layout mmvp has a number, a pattern and a statement");
  OptionItem item;
  for (std::vector<std::string> row; table.next(row);) {
    const std::string number(strip(row[0])), pattern(strip(row[1]));
    if (item.pictures.empty()) item.kind = pattern;
    item.pictures.push_back(out.picture((std::filesystem::path(item.kind) / number).generic_string()));
    item.texts.push_back(row[2]);
    if (item.pictures.size() < 2) continue;
    out.add(std::move(item), concat(path, ":", table.line()));
    item = {};
  }
  if (!item.pictures.empty()) user_error(path, ": its last row has no partner; every two rows are a pair");
}

}  // namespace tessera
