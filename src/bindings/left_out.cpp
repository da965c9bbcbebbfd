// Only in the wheel's libtessera.so: the functions of GDAL and OpenEXR that OpenCV's imgcodecs, linked from Debian's archive, calls
// when it lists its decoders for the first image of any format. check_image() rejects all files that GDAL, GDCM, OpenEXR or
// OpenJPEG would read, so these libraries are left out and the functions can be empty.
extern "C" {

void GDALAllRegister() {}

// OpenEXR's Chromaticities::Chromaticities(V2f, V2f, V2f, V2f), for a member of the decoder; nothing reads the numbers that it sets.
void no_chromaticities() __asm__("_ZN7Imf_3_114ChromaticitiesC1ERKN9Imath_3_14Vec2IfEES5_S5_S5_");
void no_chromaticities() {}

}  // extern "C"
