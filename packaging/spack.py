# For Spack 1.0 and later, which import packages from spack_repo.
import os

from spack_repo.builtin.build_systems.go import GoPackage

from spack.package import *


class Bringupd(GoPackage):
    """Brings up a cluster inside a batch allocation, and runs a driver on it."""

    # bringupd is not on the Web: the file is taken from the current directory.
    manual_download = True
    url = f"file://{os.getcwd()}/bringupd-@VERSION@-source.tar.gz"
    license("Apache-2.0")

    version("@NUMBER@", sha256="@HASH@", url=url)

    variant("gpu", default=True, description="See GPUs, by NVIDIA's library where there is one")

    depends_on("go@1.26:", type="build")
    depends_on("c", type="build", when="+gpu")

    @property
    def cgo_enabled(self):
        return self.spec.satisfies("+gpu")

    @property
    def build_args(self):
        ldflags = "-s -w -X github.com/bringupd/bringupd/internal/version.stamped=@VERSION@"
        return ["-p", str(make_jobs), "-modcacherw", "-trimpath", "-tags", "@TAGS@", "-ldflags", ldflags, "-o", "bringupd", "./cmd/bringupd"]

    @run_after("install")
    def install_the_rest(self):
        mkdirp(prefix.share.man.man1)
        install("docs/bringupd.1", prefix.share.man.man1)
        install_tree("deploy", prefix.share.bringupd.deploy, ignore=lambda path: path.endswith(".go"))
        install_tree("examples", prefix.share.bringupd.examples)
