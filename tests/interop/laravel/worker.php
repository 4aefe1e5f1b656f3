<?php
// A worker of Laravel's queue, to be killed: php worker.php URL QUEUE LEASE LEDGER.
// Every delivery stands in the ledger, under the process id, before its job is settled.

error_reporting(E_ALL & ~E_DEPRECATED);
ini_set('display_errors', 'stderr');

require_once 'Illuminate/Queue/autoload.php';
require_once 'Illuminate/Redis/autoload.php';

use Illuminate\Container\Container;
use Illuminate\Queue\RedisQueue;
use Illuminate\Redis\RedisManager;

[, $url, $name, $lease, $ledger] = $argv;
$container = new Container;
$redis = new RedisManager($container, 'phpredis', ['default' => ['url' => $url]]);
$queue = new RedisQueue($redis, $name, null, (int) $lease);
$queue->setContainer($container);

$running = true;
pcntl_async_signals(true);
pcntl_signal(SIGTERM, function () use (&$running) {
    $running = false;
});

while ($running) {
    if (! $job = $queue->pop()) {
        usleep(50000);
        continue;
    }
    usleep(3000);
    $payload = $job->payload();
    file_put_contents($ledger, 'laravel:'.getmypid()." {$payload['meta']['id']}\n", FILE_APPEND);
    $payload['job'] === 'urn:bad' ? $job->release(0) : $job->delete();
}
