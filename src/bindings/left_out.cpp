// In the wheel's libtessera.so alone: OpenCV's imgcodecs, linked from its archive, registers GDAL's drivers before it decodes the first
// picture of any kind. check_image() lets no file through that GDAL, GDCM or OpenEXR would read, so that they are left out, and
// nothing is to be registered.
extern "C" void GDALAllRegister() {}
