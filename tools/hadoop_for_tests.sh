#!/bin/sh
# Makes a small Hadoop for tests of history on HDFS: hadoop_for_tests.sh FOLDER
#
# FOLDER gets `mini-hadoop FOLDER PORT`, a NameNode and a DataNode in one JVM, and libhdfs.so, by which pyarrow
# reaches it. Needs a JDK, Maven, cargo (for the sources of libhdfs) and a C compiler. Versions are pinned; the
# registries' clients check what they fetch.
set -eu

hadoop=3.4.1
libhdfs_crate=0.3.1

[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1/jars" "$1/sources"
folder=$(CDPATH='' cd -- "$1" && pwd -P)
java_home=${JAVA_HOME:-$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")}

for artifact in \
    "org.apache.hadoop:hadoop-client-api:$hadoop" \
    "org.apache.hadoop:hadoop-client-runtime:$hadoop" \
    "org.apache.hadoop:hadoop-client-minicluster:$hadoop" \
    commons-logging:commons-logging:1.3.5 \
    org.slf4j:slf4j-api:2.0.17 \
    org.apache.commons:commons-lang3:3.19.0 \
    org.mockito:mockito-core:2.28.2 \
    net.bytebuddy:byte-buddy:1.9.10 \
    org.objenesis:objenesis:2.6 \
    junit:junit:4.13.2; do
    mvn -q -B dependency:copy "-Dartifact=$artifact" "-DoutputDirectory=$folder/jars"
done

cd "$folder/sources"
[ -f Cargo.toml ] || cargo init --quiet --lib --vcs none --name sources .
cargo add --quiet "hdfs-sys@=$libhdfs_crate"
cargo vendor --quiet >/dev/null
c=$folder/sources/vendor/hdfs-sys/libhdfs
gcc -w -fcommon -shared -fPIC -O2 -o "$folder/libhdfs.so" \
    "$c"/hdfs_3_3/*.c "$c"/hdfs_3_3/os/posix/*.c \
    -I"$c" -I"$c/hdfs_3_3" -I"$c/hdfs_3_3/include" -I"$c/hdfs_3_3/os" -I"$c/hdfs_3_3/os/posix" \
    -I"$java_home/include" -I"$java_home/include/linux" \
    -L"$java_home/lib/server" -ljvm "-Wl,-rpath,$java_home/lib/server" -lpthread -ldl

cat >"$folder/MiniHadoop.java" <<'JAVA'
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A NameNode at the port that is given, and a DataNode; until the process is ended. */
public class MiniHadoop {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, arguments[0]);
        settings.set("dfs.permissions.enabled", "false");
        new MiniDFSCluster.Builder(settings)
            .nameNodePort(Integer.parseInt(arguments[1])).numDataNodes(1).build().waitActive();
        System.out.println("ready");
        Thread.currentThread().join();
    }
}
JAVA
"$java_home/bin/javac" -cp "$folder/jars/*" -d "$folder" "$folder/MiniHadoop.java"
cat >"$folder/mini-hadoop" <<'RUN'
#!/bin/sh
folder=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" -Xmx400m -cp "$folder/jars/*:$folder" MiniHadoop "$@"
RUN
chmod +x "$folder/mini-hadoop"
