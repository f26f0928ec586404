#!/bin/bash
# Builds everything in Java that the tests need, in one run of Maven: the peer with each version of Redisson into
# $SNIB_BUILD/interop/VERSION, and the one of tests/fencing into $SNIB_BUILD/fencing/java.
#
# Done already unless a source has changed.  Both checks call this, perhaps at the same time.
set -euo pipefail
cd "$(dirname "$0")"
FENCING=$PWD/../../fencing/java
mkdir -p "$SNIB_BUILD/interop/maven" "$SNIB_BUILD/fencing"
BUILD=$(cd "$SNIB_BUILD" && pwd)
MAVEN=$BUILD/interop/maven
SUM=$MAVEN/sum
PLUGINS=org.apache.maven.plugins

all_made() {
    local folder
    for folder in "${made[@]}"; do
        [ -d "$folder/classes" ] && [ -d "$folder/dependency" ] || return 1
    done
}

exec 9>"$MAVEN/lock"
flock 9
versions=$(cd .. && python -c 'import versions; print(*versions.VERSIONS)')
sum=$(cat ../versions.py ./* "$FENCING"/* | sha256sum)
made=("$BUILD/fencing/java")
for version in $versions; do made+=("$BUILD/interop/$version"); done
if [ "$(cat "$SUM" 2>/dev/null)" = "$sum" ] && all_made; then exit 0; fi
rm -rf "$SUM" "${made[@]}"

modules=
# project NAME TEMPLATE FOLDER [REDISSON]
project() {
    mkdir -p "$MAVEN/$1"
    sed "s|@REDISSON@|${4:-}|; s|@BUILD@|$3|; s|@SOURCES@|$(dirname "$2")|" "$2" >"$MAVEN/$1/pom.xml"
    modules+="<module>$1</module>"
}
for version in $versions; do project "$version" "$PWD/pom.xml" "$BUILD/interop/$version" "$version"; done
project fencing "$FENCING/pom.xml" "$BUILD/fencing/java"
cat >"$MAVEN/pom.xml" <<EOF
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>snib</groupId>
  <artifactId>peers</artifactId>
  <version>0</version>
  <packaging>pom</packaging>
  <modules>$modules</modules>
</project>
EOF

# It does not run for long: the second compiler would not pay.
MAVEN_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC ${MAVEN_OPTS:-}" mvn -q -B -f "$MAVEN/pom.xml" \
    $PLUGINS:maven-compiler-plugin:3.1:compile $PLUGINS:maven-dependency-plugin:2.8:copy-dependencies \
    >"$MAVEN/log" 2>&1 9>&- || { tail -n 20 "$MAVEN/log" >&2; rm -rf "${made[@]}"; exit 1; }
printf '%s\n' "$sum" >"$SUM"
