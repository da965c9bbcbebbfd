#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/sample.h>

namespace tessera {

/// A caption with the images found for it, or an image with the captions found for it; best first.
struct RetrievalSheet {
  struct Item {
    Image image;       // for text-to-image: the image found
    std::string text;  // the text found; for text-to-image: the name of the image found
    double score = 0;  // cosine
    bool right = false;
  };
  bool text_to_image = true;
  Image query_image;               // for image-to-text: the query; for text-to-image: the correct image
  std::string query_text;          // for text-to-image: the query
  std::vector<std::string> truth;  // for image-to-text: the image's own captions
  std::int64_t rank = 0;           // rank of the highest-ranked correct item, counted from 0; -1 if no item is correct
  std::vector<Item> items;
  std::string query_name = {};  // the name of query_image
};

/// An image with its true and predicted mask, at the model's image size. `name` is the sample's key, as in all examples.
struct SegmentationExample {
  Image image;
  std::vector<std::uint8_t> target;  // [height, width] class indices, 255 = ignored; empty if the data have no masks
  std::vector<std::uint8_t> prediction;  // [height, width]
  double iou = 0;                        // mean IoU over the target's classes without the background; -1 if there are no such classes
  std::string name = {};
};

struct ClassificationExample {
  Image image;
  std::int64_t label = -1;
  std::vector<std::pair<std::int64_t, double>> best;  // class and probability, best first
  std::string name = {};
};

/// An image with its caption, and the attention of single slots to the image's patches and to the caption's tokens.
struct SlotExample {
  struct Slot {
    std::int64_t index = 0;
    double cosine = 0;         // cosine of the image's slot with the caption's slot
    std::vector<float> image;  // attention to each patch, in row-major order
    std::vector<float> text;   // attention to each token
  };
  Image image;
  std::int64_t rows = 0, columns = 0;  // size of the patch grid
  std::vector<std::string> tokens;     // the tokens' texts, which begin with a space at the start of a word; empty for a token without text
  std::vector<Slot> slots;
  std::string name = {};
};

/// An image with its most active vocabulary tokens, and maps that show where single words are active in the image.
struct TokenExample {
  struct Token {
    std::string text;
    double weight = 0;  // the token's entry in the image's embedding, or the image's similarity with the token's text
  };
  struct Map {
    std::string word;
    std::vector<float> patches;  // activations of the patches in row-major order, from 0 to 1
  };
  Image image;
  std::int64_t rows = 0, columns = 0;  // size of the patch grid
  std::vector<Token> tokens;           // best first
  std::vector<Map> maps;
  std::string name = {};
};

/// A caption with its words in groups, and its image.
struct GroupExample {
  struct Token {
    std::string text;            // the token's text, which begins with a space at the start of a word; empty for a token without text
    bool in_phrase = false;      // whether the token belongs to an annotated phrase
    std::int64_t group = 0;      // the group with the largest weight; -1 for a token without text
    std::vector<float> weights;  // the token's weight in each group
  };
  Image image;                               // the caption's image; empty if it could not be decoded
  std::vector<std::uint8_t> picture_groups;  // [height, width], the group of each pixel; empty if the image has no groups
  std::vector<Token> tokens;
};

/// An image with heat maps of texts, or of the words of a text.
struct MapExample {
  struct Map {
    std::string text;
    std::optional<double> cosine;  // the cosine of image and text; nullopt for a word
    std::vector<float> patches;    // one value per patch, in row-major order
  };
  Image image;
  std::int64_t rows = 0, columns = 0;  // size of the patch grid
  std::vector<Map> maps;
  std::string name = {};
  std::string text = {};  // the text whose words the maps show; empty if each map has its own text
};

/// An image with the caption that a model writes for it.
struct CaptionExample {
  Image image;
  std::string written;
  std::vector<std::string> truth;  // the image's own captions
  double score = 0;                // CIDEr-D
  std::string name = {};
};

/// Images and texts as points in two dimensions.
struct ScatterChart {
  struct Point {
    double x = 0, y = 0;
    std::int64_t class_index = -1;  // the point's class; -1 if it has none
    bool is_text = false;
    std::string name;  // the text, or the sample's key
  };
  std::string title;
  std::vector<Point> points;
  std::vector<std::string> class_names;  // names of the classes, which determine the colors of the points
};

/// The examples and charts that a task adds to the report. They are empty if the task has none or the report shows none.
struct TaskPictures {
  std::vector<std::string> class_names;
  std::int64_t background_class = -1;
  std::vector<RetrievalSheet> retrieval;
  std::vector<SegmentationExample> segmentation;
  std::vector<ClassificationExample> classification;  // examples spread evenly over the data
  std::vector<ClassificationExample> mistakes;        // mistakes, the most confident first
  std::vector<RetrievalSheet> queries;                // queries for which no image is known to be right
  std::vector<SlotExample> slots;
  std::vector<TokenExample> tokens;
  std::vector<GroupExample> groups;
  std::vector<MapExample> maps;
  std::string map_title = "Grad-CAM", map_rule;  // heading of the maps, and what they show, in sentences
  std::vector<CaptionExample> captions;
  std::vector<ScatterChart> scatters;
  std::vector<std::vector<std::int64_t>> confusion;          // [true class][predicted class] counts
  std::vector<std::pair<std::string, double>> class_values;  // class name and value
  std::string class_measure = "Accuracy";                    // what the values in class_values measure
  std::string class_kind = "class";                          // what the names in class_values denote
};

}  // namespace tessera
