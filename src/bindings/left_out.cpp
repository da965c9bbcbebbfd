// In the wheel's libtessera.so alone: what OpenCV's imgcodecs, linked from Debian's archive, calls of GDAL and OpenEXR when it makes its
// list of decoders, for the first picture of any kind. check_image() lets no file through that GDAL, GDCM, OpenEXR or OpenJPEG
// would read, so that these libraries are left out, and nothing is to be done here.
extern "C" {

void GDALAllRegister() {}

// OpenEXR's Chromaticities::Chromaticities(V2f, V2f, V2f, V2f), of a member of the decoder: it fills in numbers that nobody reads.
void no_chromaticities() __asm__("_ZN7Imf_3_114ChromaticitiesC1ERKN9Imath_3_14Vec2IfEES5_S5_S5_");
void no_chromaticities() {}

}  // extern "C"
