#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tessera/base/random.h>
#include <tessera/batch.h>
#include <tessera/data/loading/loader_settings.h>
#include <tessera/sample.h>

namespace tessera {

/// The texts of the objects that a sample's views show.
struct RegionTexts {
  std::vector<std::string> phrases;    // one for each box; empty if there is no box
  std::vector<std::string> negatives;  // those of box r start at index r * H
};

/// The inputs to the choice of a sample's texts.
struct TextDraw {
  std::uint64_t seed = 0;
  std::int64_t index = 0, repeat = 0;
  std::int64_t caption = -1;                    // index of the caption to use; -1: chosen by caption_choice
  std::function<const RegionTexts&()> regions;  // chooses the objects when first called
  bool optional = false;                        // whether the view may be missing
};

/// A kind of text view: it chooses the texts of a sample. Thread-safe; each choice is a function of TextDraw.
struct TextView {
  std::string name;
  std::int64_t count = 1;  // texts per image; 0 if the settings do not define the view
  std::string unset;       // for the error if they do not: what the objective asks for, and how to set it
  /// Returns whether the sample has a text for the view.
  std::function<bool(const Sample& sample)> is_in;
  /// Returns `count` texts. A blank text counts as absent. Throws SampleError if a text is damaged, or if there is none and the view is not
  /// optional.
  std::function<std::vector<std::string>(const Sample& sample, const TextDraw& draw)> choose;
  /// Throws SampleError if the sample is bad because none of the chosen texts has words.
  std::function<void(const Sample& sample, bool optional)> check_wordless = [](const Sample&, bool) {};
  std::string fields = {};  // the fields from which the texts come, if the settings choose them
};

/// Makes all text views, in the order in which messages list them.
std::vector<TextView> make_text_views(const LoaderSettings& settings);

/// Returns all texts of a sample that views may show whole, without those that are blank or not UTF-8; each once, in alphabetical order.
std::vector<std::string> usable_texts(const Sample& sample);
/// Throws UserError that begins with `setting` if the view `captions` is needed and composes its texts of sentences, for which no vectors can
/// be stored.
void refuse_sentences(const Needs& needs, const LoaderSettings& settings, const char* setting);

/// The error if boxes or their texts are needed, but data.loader.boxes is not set.
inline constexpr const char* kBoxesUnset =
    "boxes of objects or their phrases, but data.loader.boxes is not set: set it, as in {count: 4, negatives: 10}";

/// Returns the objects with a box and a phrase.
std::vector<const ObjectAnnotation*> phrased_objects(const Sample& sample);
/// Appends `count` of the object's usable hard negatives to `out`, in random order. If there are fewer, empty texts fill the rest.
void add_negatives(const ObjectAnnotation& object, std::int64_t count, Random& random, std::vector<std::string>& out);

}  // namespace tessera
