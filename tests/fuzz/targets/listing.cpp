// Reads files that list images. The first byte selects the format; the rest is the file.
#include "src/data/sources/benchmarks.h"
#include "src/data/sources/tables.h"
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>

namespace tessera::fuzz {
namespace {

std::shared_ptr<Source> make_listing(char format, const std::string& path) {
  switch (format) {
    case 'c': {
      CsvSettings settings(PathList{{path}});
      settings.separator = "comma";
      settings.label_keys = {"label"};
      return make_csv(settings);
    }
    case 'k':
      return make_karpathy({.annotations = path, .images = "images", .split = "train+val"});
    case 'o':
      return make_coco_captions({.annotations = path, .images = "images"});
    default:
      return make_csv(PathList{{path}});
  }
}

void check_entities(std::string_view input) {
  const std::size_t mark = input.find("\n%%\n");
  Sample sample;
  set_entities(input.substr(0, mark), mark == std::string_view::npos ? "" : input.substr(mark + 4), sample);
  for (const ObjectAnnotation& object : sample.objects) {
    const std::string& caption = sample.captions.at(static_cast<std::size_t>(object.caption));
    require(object.span[0] >= 0 && object.span[0] <= object.span[1], "entities: a span runs backwards");
    require(object.span[1] <= static_cast<std::int64_t>(caption.size()), "entities: a span outside of the caption");
    require(object.box[2] >= 0 && object.box[3] >= 0, "entities: a box of negative size");
  }
}

}  // namespace

void fuzz_listing(std::string_view input) {
  static InputFile file;
  if (input.empty()) return;
  try {
    if (input[0] == 'e') {
      check_entities(input.substr(1));
      return;
    }
    file.write(input.substr(1));
    const std::shared_ptr<Source> source = make_listing(input[0], file.path());
    require(source->size() >= 0, "listing: negative size");
  } catch (const SampleError& error) {
    check_message(error);
  } catch (const UserError& error) {
    check_message(error);
  }
}

}  // namespace tessera::fuzz
