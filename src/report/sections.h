#pragma once

#include <string>

#include <tessera/report/task_pictures.h>

namespace tessera::report {

/// Return the examples and charts of one task as HTML, or an empty text if the task does not have them.
std::string class_values(const TaskPictures& pictures);
std::string confusion_table(const TaskPictures& pictures);
std::string classification_examples(const TaskPictures& pictures);
std::string query_sheets(const TaskPictures& pictures);
std::string retrieval_sheets(const TaskPictures& pictures);
std::string segmentation_overlays(const TaskPictures& pictures);
std::string slot_sheets(const TaskPictures& pictures);
std::string token_sheets(const TaskPictures& pictures);
std::string caption_sheets(const TaskPictures& pictures);
std::string map_sheets(const TaskPictures& pictures);
std::string scatter_charts(const TaskPictures& pictures);
std::string group_sheets(const TaskPictures& pictures);

}  // namespace tessera::report
