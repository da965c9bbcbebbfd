#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/sample.h>

namespace tessera {

/// A caption and the pictures that were found for it, or a picture and the captions; best first.
struct RetrievalSheet {
  struct Item {
    Image image;       // text-to-image
    std::string text;  // image-to-text
    double score = 0;  // cosine
    bool right = false;
  };
  bool text_to_image = true;
  Image query_image;               // image-to-text: the query; text-to-image: the picture that is right
  std::string query_text;          // text-to-image
  std::vector<std::string> truth;  // image-to-text: the image's own captions
  std::int64_t rank = 0;           // place of the best right item, from 0; -1: nothing is right
  std::vector<Item> items;
};

/// A picture with its true and predicted mask, at the model's image size.
struct SegmentationExample {
  Image image;
  std::vector<std::uint8_t> target;      // [height, width] class indices, 255 = ignored
  std::vector<std::uint8_t> prediction;  // [height, width]
  double iou = 0;                        // mean over the present classes; -1 = none present
};

struct ClassificationExample {
  Image image;
  std::int64_t label = -1;
  std::vector<std::pair<std::int64_t, double>> best;  // class and probability, best first
};

/// A picture with its caption, and where single slots look in both.
struct SlotExample {
  struct Slot {
    std::int64_t index = 0;
    double cosine = 0;         // between the picture's slot and the caption's
    std::vector<float> image;  // attention to each patch, row by row
    std::vector<float> text;   // attention to each token
  };
  Image image;
  std::int64_t rows = 0, columns = 0;  // of patches
  std::vector<std::string> tokens;     // a word begins with a space; empty: a token without text
  std::vector<Slot> slots;
};

/// A picture with the vocabulary tokens that are most active for it, and where single words are active in it.
struct TokenExample {
  struct Token {
    std::string text;
    double weight = 0;  // of its encoding, or the similarity with the token's text
  };
  struct Map {
    std::string word;
    std::vector<float> patches;  // activation row by row, from 0 to 1
  };
  Image image;
  std::int64_t rows = 0, columns = 0;  // of patches
  std::vector<Token> tokens;           // best first
  std::vector<Map> maps;
};

/// A caption whose words fall into groups, beside its picture.
struct GroupExample {
  struct Token {
    std::string text;            // a word begins with a space; empty: a token without text
    bool in_phrase = false;      // one of an annotated phrase's
    std::int64_t group = 0;      // that of its greatest weight; -1: a token without text
    std::vector<float> weights;  // of each group
  };
  Image image;                               // empty: none could be shown
  std::vector<std::uint8_t> picture_groups;  // [height, width] groups of the picture's pixels; empty: there are none
  std::vector<Token> tokens;
};

/// A picture, and where in it its similarity with texts comes from.
struct MapExample {
  struct Map {
    std::string text;
    double cosine = 0;
    std::vector<float> patches;  // row by row, 0 and above
  };
  Image image;
  std::int64_t rows = 0, columns = 0;  // of patches
  std::vector<Map> maps;
};

/// A picture with the caption that a model writes for it.
struct CaptionExample {
  Image image;
  std::string written;
  std::vector<std::string> truth;  // the picture's own captions
  double score = 0;                // CIDEr-D
};

/// Pictures and texts as points on a plane.
struct ScatterChart {
  struct Point {
    double x = 0, y = 0;
    std::int64_t class_index = -1;  // -1: none
    bool is_text = false;
    std::string name;  // the text, or the sample's key
  };
  std::string title;
  std::vector<Point> points;
  std::vector<std::string> class_names;  // for their colors
};

/// What a task hands to the report besides numbers. Empty where the task has none, or nobody asked.
struct TaskPictures {
  std::vector<std::string> class_names;
  std::int64_t background_class = -1;
  std::vector<RetrievalSheet> retrieval;
  std::vector<SegmentationExample> segmentation;
  std::vector<ClassificationExample> classification;  // of any pictures
  std::vector<ClassificationExample> mistakes;        // the surest first
  std::vector<RetrievalSheet> queries;                // of texts without a right picture
  std::vector<SlotExample> slots;
  std::vector<TokenExample> tokens;
  std::vector<GroupExample> groups;
  std::vector<MapExample> maps;
  std::vector<CaptionExample> captions;
  std::vector<ScatterChart> scatters;
  std::vector<std::vector<std::int64_t>> confusion;          // [true class][predicted class] counts
  std::vector<std::pair<std::string, double>> class_values;  // by class name, where there is one
  std::string class_measure = "Accuracy";                    // what class_values are
  std::string class_kind = "class";                          // what their names are
};

}  // namespace tessera
