// Reads the JSON side files of samples and the captions in them.
#include "src/data/formats/annotations.h"

#include "tests/fuzz/target.h"
#include <tessera/base/text.h>

namespace tessera::fuzz {

void fuzz_annotations(std::string_view input) {
  Sample sample;
  sample.captions = {"a cat"};
  read_annotations(input, {"caption", "captions"}, sample);
  require(!sample.captions.empty(), "annotations: a caption is lost");
  for (const std::string& caption : sample.captions) require(is_utf8(caption), "annotations: a caption is not UTF-8");
  for (const ObjectAnnotation& object : sample.objects) {
    require(is_utf8(object.phrase), "annotations: a phrase");
    for (const std::string& negative : object.negatives) require(is_utf8(negative), "annotations: a phrase's negative");
  }
}

}  // namespace tessera::fuzz
