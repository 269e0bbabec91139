#!/bin/sh
# Runs a class of Kafka's jars with the options that the stock scripts take from the environment.

# Options are words: they are meant to be split.
# shellcheck disable=SC2086
exec java ${KAFKA_HEAP_OPTS:--Xmx256m} ${KAFKA_JVM_PERFORMANCE_OPTS:--XX:+UseSerialGC -XX:TieredStopAtLevel=1} \
    -XX:-UsePerfData ${KAFKA_OPTS:-} \
    -Dorg.slf4j.simpleLogger.defaultLogLevel="${LEVADA_LOG_LEVEL:-warn}" \
    -Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS \
    -Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn \
    -cp '/opt/kafka/libs/*' "$@"
